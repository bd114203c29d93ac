//! Runs the store suite on Redis, with the store's own pool and with a pool of the user.

mod memory_use;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bb8_redis::{RedisConnectionManager, bb8};
use tollgate::{ManualClock, RedisStore, bb8_redis, redis, store::RedisStoreBuilder};
use tollgate_testing::{Fixture, store_suite};

use crate::support::redis_server::RedisServer;

fn builder(clock: &ManualClock) -> RedisStoreBuilder {
    // A long deadline, so that a loaded machine causes no timeouts.
    RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10))
}

/// Counts the keys that are needed, or have no time-to-live. With a client's clock, each key lives for a minute longer
/// than it is needed.
const COUNT_KEYS: &str = "
    local needed = 0
    for _, key in ipairs(redis.call('KEYS', '*')) do
        local left = redis.call('PTTL', key)
        if left < 0 or left > 60000 then needed = needed + 1 end
    end
    return needed";

/// A fixture on a server of its own, which the suite kills and restarts.
fn fixture(store: RedisStore, clock: ManualClock, server: RedisServer) -> Fixture {
    let server = Arc::new(Mutex::new(server));
    let counted = Arc::clone(&server);
    Fixture::new(store, clock)
        .with_outage(move |is_down| match is_down {
            true => server.lock().unwrap().kill(),
            false => server.lock().unwrap().restart(),
        })
        .with_count_of_keys(move || {
            let mut connection = counted.lock().unwrap().connection();
            redis::cmd("EVAL").arg(COUNT_KEYS).arg(0).query(&mut connection).unwrap()
        })
}

async fn own_pool() -> Fixture {
    let (clock, server) = (ManualClock::default(), RedisServer::start());
    fixture(builder(&clock).open(&server.url()).unwrap(), clock, server)
}

async fn user_pool() -> Fixture {
    let (clock, server) = (ManualClock::default(), RedisServer::start());
    let pool = bb8::Pool::builder().build_unchecked(RedisConnectionManager::new(server.url()).unwrap());
    fixture(builder(&clock).from_pool(pool).unwrap(), clock, server)
}

#[tokio::test]
async fn redis_passes_every_test_of_the_suite() {
    let report = store_suite(own_pool).run().await;
    report.assert_passed();
    assert!(!report.to_string().contains("skipped"), "{report}");
}

#[tokio::test]
async fn redis_through_a_pool_of_the_user_passes_every_test_of_the_suite() {
    store_suite(user_pool).run().await.assert_passed();
}
