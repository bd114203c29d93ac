//! The compared limiters by name.

use tollgate::Algorithm;

use super::load::{Load, QUOTA};
use super::peers::{Bb8, Ceiling, Multiplexed, RateTier, RedisCell};
use super::tollgate_variants::{Setup, TollgateLimiter, TollgateScript};
use super::{servers::Endpoints, throttlecrab::Throttlecrab};
use crate::{Result, scripts};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Contender {
    Log,
    LogUnbatched,
    Counter,
    Bucket,
    Direct,
    Bb8,
    SortedSet,
    Gcra,
    RateTier,
    RedisCell,
    Throttlecrab,
    Ceiling,
}

impl Contender {
    pub const ALL: [Self; 12] = [
        Self::Log,
        Self::LogUnbatched,
        Self::Counter,
        Self::Bucket,
        Self::Direct,
        Self::Bb8,
        Self::SortedSet,
        Self::Gcra,
        Self::RateTier,
        Self::RedisCell,
        Self::Throttlecrab,
        Self::Ceiling,
    ];

    /// The exact log and what it is divided by, with the name of the ratio.
    pub const RATIOS: [(Self, &'static str); 8] = [
        (Self::Bb8, "bb8_default"),
        (Self::SortedSet, "sorted_set"),
        (Self::Gcra, "gcra"),
        (Self::RateTier, "tower_rate_tier"),
        (Self::RedisCell, "redis_cell"),
        (Self::Throttlecrab, "throttlecrab"),
        (Self::Ceiling, "ceiling"),
        (Self::LogUnbatched, "unbatched"),
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "tollgate: exact log",
            Self::LogUnbatched => "tollgate: exact log, unbatched",
            Self::Counter => "tollgate: counter",
            Self::Bucket => "tollgate: token bucket",
            Self::Direct => "tollgate: script called directly",
            Self::Bb8 => "bb8 default + sorted-set script",
            Self::SortedSet => "sorted-set script, multiplexed",
            Self::Gcra => "GCRA script, multiplexed",
            Self::RateTier => "tower-rate-tier",
            Self::RedisCell => "redis-cell CL.THROTTLE, multiplexed",
            Self::Throttlecrab => "throttlecrab-server, multiplexed",
            Self::Ceiling => "return 1, multiplexed (ceiling)",
        }
    }

    /// Whether the server that this limiter needs has been started.
    pub fn is_available(self, endpoints: &Endpoints) -> bool {
        match self {
            Self::RedisCell => endpoints.has_redis_cell,
            Self::Throttlecrab => endpoints.throttlecrab.is_some(),
            _ => true,
        }
    }

    pub async fn connect(self, endpoints: &Endpoints) -> Result<Box<dyn Load>> {
        let redis = &endpoints.redis;
        let tollgate = |prefix, algorithm, batching| {
            boxed(TollgateLimiter::new(redis, Setup { prefix, algorithm, batching }, QUOTA))
        };
        match self {
            Self::Log => tollgate("log:", Algorithm::SlidingWindowLog, true),
            Self::LogUnbatched => tollgate("one:", Algorithm::SlidingWindowLog, false),
            Self::Counter => tollgate("ctr:", Algorithm::SlidingWindowCounter, true),
            Self::Bucket => tollgate("bkt:", Algorithm::TokenBucket, true),
            Self::Direct => boxed(TollgateScript::new(redis, QUOTA).await),
            Self::Bb8 => boxed(Bb8::new(redis, "bb8", scripts::SORTED_SET_LOG, QUOTA).await),
            Self::SortedSet => boxed(Multiplexed::new(redis, "zset", scripts::SORTED_SET_LOG, QUOTA).await),
            Self::Gcra => boxed(Multiplexed::new(redis, "gcra", scripts::GCRA, QUOTA).await),
            Self::RateTier => boxed(RateTier::new(redis, QUOTA).await),
            Self::RedisCell => boxed(RedisCell::new(redis, QUOTA).await),
            Self::Throttlecrab => {
                let endpoint = endpoints.throttlecrab.as_ref().ok_or("throttlecrab-server is not running")?;
                boxed(Throttlecrab::new(endpoint, QUOTA).await)
            }
            Self::Ceiling => boxed(Ceiling::new(redis).await),
        }
    }
}

fn boxed<L: Load + 'static>(load: Result<L>) -> Result<Box<dyn Load>> {
    load.map(|load| Box::new(load) as Box<dyn Load>)
}
