//! Forecasts from the decisions of a Redis store.

use tollgate::{Limiter, ManualClock};

use crate::support::{forecast::forecasts, patient, redis_server::RedisServer, seed::seeds};

#[tokio::test]
async fn law_12_on_redis_forecasts_are_those_of_the_oracle_and_no_key_is_denied_before() {
    let server = RedisServer::start();
    let mut told = Vec::new();
    for seed in seeds(8) {
        let clock = ManualClock::default();
        let limiter = Limiter::new(patient().clock(clock.clone()).open(&server.url()).unwrap());
        told.push(forecasts(&limiter, &clock, seed, 40).await);
    }
    assert!(told.iter().all(|told| told.exact > 0 && told.other > 0 && told.never > 0), "{told:?}");
}
