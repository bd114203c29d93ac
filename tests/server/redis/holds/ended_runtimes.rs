//! A runtime for each piece of work: the end of a hold may come after the end of its runtime.

use std::time::Duration;

use tokio::runtime;
use tollgate::{Limiter, Policy, limiter::HoldAnswer, policy::HoldSettings};

use super::builder;
use crate::support::redis_server::RedisServer;

fn hold(limiter: &Limiter, policy: &Policy, cost: u64) -> HoldAnswer {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(limiter.hold("k", policy, cost)).unwrap()
}

/// The end is sent before the check of the next use, and Redis judges in this order.
#[test]
fn law_15_a_hold_whose_runtime_has_ended_is_free_for_the_next_check_of_another_one() {
    let server = RedisServer::start();
    let limiter = Limiter::new(builder().open(&server.url()).unwrap());
    let slot = Policy::concurrent("slot", 1).unwrap();
    let tokens =
        Policy::per_day("tokens", 100).unwrap().with_holds(HoldSettings::new().with_ttl(Duration::from_secs(600)));
    for (policy, cost) in [(slot, 1), (tokens, 90)] {
        for number in 0..10 {
            let held = hold(&limiter, &policy, cost);
            assert!(held.is_allowed(), "{}: {number}", policy.name());
            // Outside of a runtime: its own has ended.
            let hold = held.into_result().unwrap();
            drop(hold.settle(1));
        }
    }
}
