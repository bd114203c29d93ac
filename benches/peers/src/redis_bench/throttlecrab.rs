//! throttlecrab-server: a server of its own that counts in memory (GCRA) and speaks the protocol of Redis.

use redis::aio::MultiplexedConnection;

use super::load::Checker;
use crate::{Result, endpoint::Endpoint, scripts::Quota};

/// The THROTTLE command over one multiplexed connection, like the other servers' commands.
///
/// Version 0.4.40 writes each reply by itself and does not set TCP_NODELAY. So with latency, a reply can wait until the
/// client has acknowledged the reply before it.
#[derive(Clone)]
pub struct Throttlecrab {
    connection: MultiplexedConnection,
    quota: Quota,
}

impl Throttlecrab {
    pub async fn new(endpoint: &Endpoint, quota: Quota) -> Result<Self> {
        Ok(Self { connection: endpoint.multiplexed().await?, quota })
    }
}

impl Checker for Throttlecrab {
    async fn check(&mut self, key: &str) -> Result<bool> {
        let Quota { limit, window_us } = self.quota;
        let mut command = redis::cmd("THROTTLE");
        command.arg(key).arg(limit).arg(limit).arg(window_us / 1_000_000).arg(1);
        let reply: Vec<i64> = command.query_async(&mut self.connection).await?;
        // THROTTLE returns 1 for an allowed request.
        Ok(reply.first() == Some(&1))
    }
}
