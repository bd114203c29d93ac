//! Runs the store suite on Redis, with the store's own pool and with a pool of the user.

mod memory_use;
#[path = "../../tests/store/suite/mod.rs"]
mod suite;

mod on {
    use std::time::Duration;

    use bb8_redis::{RedisConnectionManager, bb8};
    use tollgate::{ManualClock, RedisStore, bb8_redis, store::RedisStoreBuilder};

    use super::suite::{Fixture, suite};
    use crate::support::redis_server::RedisServer;

    fn builder(clock: &ManualClock) -> RedisStoreBuilder {
        RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10))
    }

    fn own_pool() -> Fixture {
        let (clock, server) = (ManualClock::default(), RedisServer::start());
        Fixture::new(builder(&clock).connect(&server.url()).unwrap(), clock, server)
    }

    fn user_pool() -> Fixture {
        let (clock, server) = (ManualClock::default(), RedisServer::start());
        let pool = bb8::Pool::builder().build_unchecked(RedisConnectionManager::new(server.url()).unwrap());
        Fixture::new(builder(&clock).from_pool(pool).unwrap(), clock, server)
    }

    suite!(redis, super::own_pool);
    suite!(user_pool, super::user_pool);
}
