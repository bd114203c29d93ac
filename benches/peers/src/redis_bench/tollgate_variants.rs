//! The variants of tollgate: the limiter as services use it, and its script called directly.

use std::{sync::Arc, time::Duration};

use redis::{Script, Value, aio::MultiplexedConnection};
use tollgate::{Algorithm, Limiter, Policy, RedisStore};

use super::load::Checker;
use crate::scripts::{self, Quota};
use crate::{Result, endpoint::Endpoint};

/// A limiter on a [`RedisStore`].
#[derive(Clone)]
pub struct TollgateLimiter {
    limiter: Limiter,
    policy: Policy,
}

/// The settings of the measured store.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub prefix: &'static str,
    pub algorithm: Algorithm,
    pub batching: bool,
}

impl TollgateLimiter {
    /// Creates a limiter without the deny cache, so that Redis makes every decision.
    pub fn new(endpoint: &Endpoint, setup: Setup, quota: Quota) -> Result<Self> {
        let store = RedisStore::builder()
            .prefix(setup.prefix)
            .deadline(Duration::from_secs(10))
            .batching(setup.batching)
            .deny_cache(false)
            .open(endpoint.url())?;
        let policy = Policy::new("peers", quota.limit, Duration::from_micros(quota.window_us))?;
        Ok(Self { limiter: Limiter::new(store), policy: policy.with_algorithm(setup.algorithm) })
    }
}

impl Checker for TollgateLimiter {
    async fn check(&mut self, key: &str) -> Result<bool> {
        Ok(self.limiter.check(key, &self.policy, 1).await?.is_allowed())
    }
}

/// tollgate's script over a connection of redis-rs, without the store.
#[derive(Clone)]
pub struct TollgateScript {
    connection: MultiplexedConnection,
    hash: Arc<str>,
    quota: Quota,
}

impl TollgateScript {
    pub async fn new(endpoint: &Endpoint, quota: Quota) -> Result<Self> {
        let script = Script::new(scripts::TOLLGATE);
        let mut connection = endpoint.multiplexed().await?;
        script.load_async(&mut connection).await?;
        Ok(Self { connection, hash: script.get_hash().into(), quota })
    }
}

impl Checker for TollgateScript {
    async fn check(&mut self, key: &str) -> Result<bool> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*self.hash);
        let key = format!("direct:{{{key}}}:l5:peers");
        scripts::tollgate_args(&mut command, &[&key], None, scripts::Algorithm::Log, self.quota, 1);
        let reply: Value = command.query_async(&mut self.connection).await?;
        Ok(scripts::tollgate_verdicts(&reply, 1) == [true])
    }
}
