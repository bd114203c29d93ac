//! The other crates, as their documentation sets them up.

use std::{collections::HashMap, num::NonZeroU32, time::Duration};
use std::sync::{Arc, Mutex, PoisonError};

use governor::{DefaultKeyedRateLimiter, Quota, clock::Clock};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tower_rate_tier::{Quota as Tier, RedisStorage};
use tower_rate_tier::storage::{Storage, StorageKey};

use crate::{Answer, Request, Result};

/// For a machine that is busy: the answers are judged, not their speed.
const PATIENCE: Duration = Duration::from_secs(5);

type Governors = HashMap<(u32, u32), Arc<DefaultKeyedRateLimiter<String>>>;

#[derive(Clone)]
pub struct Peers {
    connection: ConnectionManager,
    tiers: Arc<RedisStorage>,
    governors: Arc<Mutex<Governors>>,
}

impl Peers {
    pub async fn connect(url: &str) -> Result<Self> {
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(PATIENCE));
        let connection = redis::Client::open(url)?.get_connection_manager_with_config(config).await?;
        let tiers = Arc::new(RedisStorage::new(connection.clone()).timeout(PATIENCE));
        Ok(Self { connection, tiers, governors: Arc::default() })
    }

    pub async fn ask(&self, request: &Request) -> Result<Answer> {
        match request.limiter.as_str() {
            "tower-rate-tier" => self.rate_tier(request).await,
            "redis-cell" => self.redis_cell(request).await,
            "governor" => self.governor(request),
            other => Err(format!("no crate has the limiter {other}").into()),
        }
    }

    async fn rate_tier(&self, request: &Request) -> Result<Answer> {
        let window = Duration::from_secs(request.window.into());
        let tier = Tier::with_window(request.limit, window);
        let key = StorageKey::new(&request.key, "trace");
        // The last argument is the time for storages without a clock of their own.
        match self.tiers.check_and_update(key, &tier, request.weight, 0).await? {
            Ok(_) => Ok(Answer::Allowed),
            Err(denied) => Ok(Answer::Denied(denied.retry_after)),
        }
    }

    async fn redis_cell(&self, request: &Request) -> Result<Answer> {
        let mut command = redis::cmd("CL.THROTTLE");
        // A burst of 9 admits ten at once.
        command.arg(format!("cell:{}", request.key)).arg(request.limit - 1);
        command.arg(request.limit).arg(request.window).arg(request.weight);
        let reply: (i64, i64, i64, i64, i64) = command.query_async(&mut self.connection.clone()).await?;
        let (is_limited, _, _, retry_after, _) = reply;
        if is_limited == 0 {
            return Ok(Answer::Allowed);
        }
        Ok(Answer::Denied(Duration::from_secs(u64::try_from(retry_after)?)))
    }

    fn governor(&self, request: &Request) -> Result<Answer> {
        let limit = NonZeroU32::new(request.limit).ok_or("a limit of 0")?;
        let weight = NonZeroU32::new(request.weight).ok_or("a weight of 0")?;
        let interval = Duration::from_secs(request.window.into()) / request.limit;
        let quota = Quota::with_period(interval).ok_or("an interval of 0")?.allow_burst(limit);
        let mut governors = self.governors.lock().unwrap_or_else(PoisonError::into_inner);
        let governor = governors
            .entry((request.limit, request.window))
            .or_insert_with(|| Arc::new(DefaultKeyedRateLimiter::keyed(quota)))
            .clone();
        drop(governors);
        match governor.check_key_n(&request.key, weight)? {
            Ok(()) => Ok(Answer::Allowed),
            Err(denied) => Ok(Answer::Denied(denied.wait_time_from(governor.clock().now()))),
        }
    }
}
