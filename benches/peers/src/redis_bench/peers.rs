//! Other limiters, and the scripts that many services write themselves.

use std::{sync::Arc, time::Duration};

use bb8_redis::{RedisConnectionManager, bb8};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{Script, ScriptInvocation};
use tower_rate_tier::storage::{Storage, StorageKey};
use tower_rate_tier::{Quota as Tier, RedisStorage};

use super::load::Checker;
use crate::{Result, endpoint::Endpoint, scripts::Quota};

/// A plain script with its arguments, called through the `Script` of redis-rs.
#[derive(Clone)]
struct Plain {
    script: Arc<Script>,
    prefix: &'static str,
    quota: Quota,
}

impl Plain {
    fn new(prefix: &'static str, code: &str, quota: Quota) -> Self {
        Self { script: Arc::new(Script::new(code)), prefix, quota }
    }

    fn invocation(&self, key: &str) -> ScriptInvocation<'_> {
        let mut invocation = self.script.key(format!("{}:{key}", self.prefix));
        invocation.arg(1).arg(self.quota.limit).arg(self.quota.window_us).arg("");
        invocation
    }
}

/// A plain script over one multiplexed connection that all tasks share.
#[derive(Clone)]
pub struct Multiplexed {
    connection: MultiplexedConnection,
    plain: Plain,
}

impl Multiplexed {
    pub async fn new(endpoint: &Endpoint, prefix: &'static str, code: &str, quota: Quota) -> Result<Self> {
        Ok(Self { connection: endpoint.multiplexed().await?, plain: Plain::new(prefix, code, quota) })
    }
}

impl Checker for Multiplexed {
    async fn check(&mut self, key: &str) -> Result<bool> {
        let reply: Vec<i64> = self.plain.invocation(key).invoke_async(&mut self.connection).await?;
        Ok(reply.first() == Some(&1))
    }
}

/// A script that only returns 1: the upper bound for all scripts.
#[derive(Clone)]
pub struct Ceiling {
    connection: MultiplexedConnection,
    script: Arc<Script>,
}

impl Ceiling {
    pub async fn new(endpoint: &Endpoint) -> Result<Self> {
        let script = Arc::new(Script::new(crate::scripts::CEILING));
        Ok(Self { connection: endpoint.multiplexed().await?, script })
    }
}

impl Checker for Ceiling {
    async fn check(&mut self, key: &str) -> Result<bool> {
        let reply: i64 = self.script.key(key).invoke_async(&mut self.connection).await?;
        Ok(reply == 1)
    }
}

/// A plain script over a bb8 pool with default settings: ten connections, each used by one caller at a time and tested
/// with a PING at every checkout.
#[derive(Clone)]
pub struct Bb8 {
    pool: bb8::Pool<RedisConnectionManager>,
    plain: Plain,
}

impl Bb8 {
    pub async fn new(endpoint: &Endpoint, prefix: &'static str, code: &str, quota: Quota) -> Result<Self> {
        let pool = bb8::Pool::builder().build(RedisConnectionManager::new(endpoint.url())?).await?;
        Ok(Self { pool, plain: Plain::new(prefix, code, quota) })
    }
}

impl Checker for Bb8 {
    async fn check(&mut self, key: &str) -> Result<bool> {
        let mut connection = self.pool.get().await?;
        let reply: Vec<i64> = self.plain.invocation(key).invoke_async(&mut *connection).await?;
        Ok(reply.first() == Some(&1))
    }
}

/// The Redis storage of tower-rate-tier, over the connection manager that its documentation recommends.
#[derive(Clone)]
pub struct RateTier {
    storage: Arc<RedisStorage<ConnectionManager>>,
    tier: Tier,
}

impl RateTier {
    pub async fn new(endpoint: &Endpoint, quota: Quota) -> Result<Self> {
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
        let manager = endpoint.client()?.get_connection_manager_with_config(config).await?;
        let storage = RedisStorage::new(manager).timeout(Duration::from_secs(10));
        let tier = Tier::with_window(u32::try_from(quota.limit)?, Duration::from_micros(quota.window_us));
        Ok(Self { storage: Arc::new(storage), tier })
    }
}

impl Checker for RateTier {
    async fn check(&mut self, key: &str) -> Result<bool> {
        // The Redis storage uses the server's clock; only the memory storage uses the time argument.
        Ok(self.storage.check_and_update(StorageKey::new(key, "free"), &self.tier, 1, 0).await?.is_ok())
    }
}

/// The CL.THROTTLE command of redis-cell over one multiplexed connection, as tower-redis-cell sends it.
#[derive(Clone)]
pub struct RedisCell {
    connection: MultiplexedConnection,
    quota: Quota,
}

impl RedisCell {
    pub async fn new(endpoint: &Endpoint, quota: Quota) -> Result<Self> {
        let mut cell = Self { connection: endpoint.multiplexed().await?, quota };
        cell.check("probe").await?;
        Ok(cell)
    }
}

impl Checker for RedisCell {
    async fn check(&mut self, key: &str) -> Result<bool> {
        let Quota { limit, window_us } = self.quota;
        let mut command = redis::cmd("CL.THROTTLE");
        command.arg(format!("cell:{key}")).arg(limit - 1).arg(limit).arg(window_us / 1_000_000).arg(1);
        let reply: Vec<i64> = command.query_async(&mut self.connection).await?;
        // CL.THROTTLE returns 0 for an allowed request.
        Ok(reply.first() == Some(&0))
    }
}
