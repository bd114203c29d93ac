//! Our own variants: the store as users have it, and its script called by hand.

use std::{sync::Arc, time::Duration};

use redis::{Script, Value, aio::MultiplexedConnection};
use tollgate::{Algorithm, Limiter, Policy, RedisStore};

use super::load::Checker;
use crate::{
    Result,
    scripts::{self, Quota},
    server::RedisServer,
};

#[derive(Clone)]
pub struct Ours {
    limiter: Limiter,
    policy: Policy,
}

/// How a store is set up for a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub prefix: &'static str,
    pub algorithm: Algorithm,
    pub batching: bool,
}

impl Ours {
    /// The deny cache is off, so that every decision is one of Redis.
    pub fn new(server: &RedisServer, setup: Setup, quota: Quota) -> Result<Self> {
        Self::at(&server.url(0), setup, quota)
    }

    /// The same, on the Redis at this address.
    pub fn at(url: &str, setup: Setup, quota: Quota) -> Result<Self> {
        let store = RedisStore::builder()
            .prefix(setup.prefix)
            .deadline(Duration::from_secs(10))
            .batching(setup.batching)
            .deny_cache(false)
            .connect(url)?;
        let policy = Policy::new("peers", quota.limit, Duration::from_micros(quota.window_us))?;
        Ok(Self { limiter: Limiter::new(store), policy: policy.with_algorithm(setup.algorithm) })
    }
}

impl Checker for Ours {
    async fn check(&mut self, key: &str) -> Result<bool> {
        Ok(self.limiter.check(key, &self.policy, 1).await?.is_allowed())
    }
}

/// The same script over a connection of redis-rs, with nothing around it.
#[derive(Clone)]
pub struct Direct {
    connection: MultiplexedConnection,
    hash: Arc<str>,
    quota: Quota,
}

impl Direct {
    pub async fn new(server: &RedisServer, quota: Quota) -> Result<Self> {
        let script = Script::new(scripts::OURS);
        let mut connection = server.multiplexed().await?;
        script.load_async(&mut connection).await?;
        Ok(Self { connection, hash: script.get_hash().into(), quota })
    }
}

impl Checker for Direct {
    async fn check(&mut self, key: &str) -> Result<bool> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.hash);
        let key = format!("direct:{{{key}}}:l4:peers");
        scripts::ours_args(&mut command, &[&key], None, scripts::Algorithm::Log, self.quota, 1);
        let reply: Value = command.query_async(&mut self.connection).await?;
        Ok(scripts::ours_verdicts(&reply) == [true])
    }
}
