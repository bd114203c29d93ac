//! What a [`RedisStore`] can be told.

use std::{
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use bb8_redis::{RedisConnectionManager, bb8};
use redis::{Client, IntoConnectionInfo, io::tcp::TcpSettings};

use super::{
    RedisStore, Shared,
    heartbeat::Heartbeat,
    pool::{Manager, Source},
    script::Loader,
};
use crate::{
    clock::Clock,
    error::ConfigError,
    failure::Breaker,
    observe::Slot,
    store::{DEFAULT_DEADLINE, deny_cache::DenyCache},
};

/// Builds a [`RedisStore`].
#[derive(Clone, Debug)]
#[must_use = "finish with `connect` or `from_pool`"]
pub struct RedisStoreBuilder {
    prefix: String,
    deadline: Duration,
    pool_size: u32,
    clock: Option<Arc<dyn Clock>>,
    batching: bool,
    deny_cache: bool,
    breaker: Option<Breaker>,
}

impl Default for RedisStoreBuilder {
    fn default() -> Self {
        Self {
            prefix: "tollgate:".to_owned(),
            deadline: DEFAULT_DEADLINE,
            pool_size: 2,
            clock: None,
            batching: true,
            deny_cache: true,
            breaker: Some(Breaker::default()),
        }
    }
}

impl RedisStoreBuilder {
    /// Sets what every key begins with. Defaults to `tollgate:`.
    ///
    /// Services with the same prefix, policy names and keys share their budgets.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets how long a check may take in all. Defaults to 50 ms: above the slowest healthy answers, below what a
    /// person notices.
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets the number of connections. Defaults to 2, so that one lost packet does not hold up every check; more
    /// rarely help, for each carries any number of checks at once.
    pub fn pool_size(self, connections: u32) -> Self {
        Self { pool_size: connections, ..self }
    }

    /// Takes the time from `clock` instead of the Redis server, for servers that forbid `TIME` in scripts and for
    /// tests. All instances need clocks that agree: a skew admits what was sent during the skew once more.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Sends checks that wait at the same time in one call. Defaults to `true`, because it multiplies what one Redis can
    /// do and delays nothing: a lone check leaves at once.
    pub fn batching(self, batching: bool) -> Self {
        Self { batching, ..self }
    }

    /// Answers denials by policies that are spent to the last unit from memory, until the first unit comes back.
    /// Defaults to `true`, because a flood of refused requests then costs Redis nothing.
    ///
    /// Such an answer is the one that Redis would give, for nothing but time can change it; policies that
    /// [count rejected requests](crate::Policy::count_rejected) are always asked for. Exceptions are a
    /// [reset](crate::Limiter::reset) and a Redis that loses its data or goes away: a reset made through a clone of this
    /// store is seen at once, and so is a connection that is lost; anything else after ten seconds at most. Switch this
    /// off if that matters.
    pub fn deny_cache(self, deny_cache: bool) -> Self {
        Self { deny_cache, ..self }
    }

    /// Sets when a limiter stops asking a Redis that does not answer, or with `None` that it never does. Defaults to
    /// [`Breaker::default`], because an outage would cost every request the deadline.
    pub fn breaker(self, breaker: impl Into<Option<Breaker>>) -> Self {
        Self { breaker: breaker.into(), ..self }
    }

    /// Finishes with a pool of our own on the Redis at `url`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URL cannot be read, or the prefix, deadline or pool size is unusable.
    pub fn connect(self, url: &str) -> Result<RedisStore, ConfigError> {
        if self.pool_size == 0 {
            return Err(ConfigError::ZeroPoolSize);
        }
        // The address part of the client's message never holds credentials, but the URL may.
        let invalid = |error: redis::RedisError| ConfigError::InvalidRedisUrl { reason: error.category().to_owned() };
        let info = url.into_connection_info().map_err(invalid)?;
        // Nagle's algorithm would hold a small request back until the answer to the one before it has come.
        let settings = TcpSettings::default().set_nodelay(true);
        let client = Client::open(info.set_tcp_settings(settings)).map_err(invalid)?;
        let manager = Box::new(Manager::new(client, self.deadline));
        let size = self.pool_size;
        self.build(Source::Dial { manager, size })
    }

    /// Finishes with a bb8-redis pool that the service has already; the pool size set here is not used.
    ///
    /// The pool's own habits remain: by default it sends a PING before every check, doubling its round trips, and with
    /// `test_on_check_out(false)` it keeps handing out a connection that broke until its lifetime ends. Its connections
    /// have no TCP_NODELAY unless their `ConnectionInfo` says so. The deadline holds in any case.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the prefix or deadline is unusable.
    pub fn from_pool(self, pool: bb8::Pool<RedisConnectionManager>) -> Result<RedisStore, ConfigError> {
        self.build(Source::Pool(pool))
    }

    fn build(self, source: Source) -> Result<RedisStore, ConfigError> {
        let Self { prefix, deadline, pool_size: _, clock, batching, deny_cache, breaker } = self;
        if deadline.is_zero() {
            return Err(ConfigError::InvalidDeadline);
        }
        if prefix.contains(['{', '}']) {
            return Err(ConfigError::InvalidPrefix { prefix });
        }
        let shared = Shared {
            source,
            links: Mutex::default(),
            loader: Loader::default(),
            batching,
            deny_cache: deny_cache.then(DenyCache::new),
            breaker,
            heartbeat: Heartbeat::default(),
            prefix: prefix.into(),
            deadline,
            clock,
            latest_us: AtomicU64::new(0),
            observer: Slot::default(),
        };
        Ok(RedisStore { shared: Arc::new(shared) })
    }
}
