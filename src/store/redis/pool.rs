//! A few multiplexed connections in a bb8 pool.
//!
//! A multiplexed connection serves any number of callers at once, so a checkout is only a look: the connection is
//! cloned and the guard given back before a single command is sent. Checkouts never wait for one another, no PING is
//! sent, and a connection that broke is thrown away at the next look.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use bb8_redis::{
    RedisConnectionManager,
    bb8::{self, ManageConnection, QueueStrategy, RunError},
};
use redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection};
use tokio::sync::watch;

use crate::error::{Error, ErrorKind};

/// Where connections come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A pool of our own.
    Dial { manager: Box<Manager>, size: u32 },
    /// One that the user has already.
    Pool(bb8::Pool<RedisConnectionManager>),
}

/// A pool at work. It belongs to the runtime that it was opened on, for its tasks do.
#[derive(Debug)]
pub(super) enum Pool {
    Own { manager: Box<Manager>, pool: bb8::Pool<Manager> },
    Theirs(bb8::Pool<RedisConnectionManager>),
}

/// A connection and what is known about it.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) inner: MultiplexedConnection,
    health: Arc<Health>,
}

#[derive(Default)]
struct Health {
    broken: AtomicBool,
    /// Calls in a row that got no reply.
    unanswered: AtomicU32,
}

/// After so many a connection may be half open, its other end gone without a word.
const UNANSWERED: u32 = 3;

impl Connection {
    fn new(inner: MultiplexedConnection) -> Self {
        Self { inner, health: Arc::default() }
    }

    /// Says that this connection is of no use any more.
    pub(super) fn mark_broken(&self) {
        self.health.broken.store(true, Ordering::Release);
    }

    /// Watches a call: without [`Call::answered`] before it is dropped, it counts as unanswered.
    pub(super) fn call(&self) -> Call {
        Call { health: Arc::clone(&self.health), answered: false }
    }

    fn is_broken(&self) -> bool {
        self.health.broken.load(Ordering::Acquire)
    }
}

/// See [`Connection::call`].
pub(super) struct Call {
    health: Arc<Health>,
    answered: bool,
}

impl Call {
    /// Says that a reply came, whatever it was.
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.answered {
            self.health.unanswered.store(0, Ordering::Relaxed);
        } else if self.health.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED {
            self.health.broken.store(true, Ordering::Release);
        }
    }
}

impl Source {
    /// Opens a pool on the current runtime.
    pub(super) fn open(&self) -> Pool {
        match self {
            Self::Dial { manager, size } => {
                let manager = Box::new(manager.afresh());
                let pool = build(Manager::clone(&manager), *size);
                Pool::Own { manager, pool }
            }
            Self::Pool(pool) => Pool::Theirs(pool.clone()),
        }
    }
}

impl Pool {
    /// A connection that nobody has found broken.
    pub(super) async fn get(&self) -> Result<Connection, Error> {
        match self {
            Self::Own { manager, pool } => loop {
                let guard = manager.or_failure(pool.get()).await?;
                if !guard.is_broken() {
                    return Ok(guard.clone());
                }
                // Dropping the guard of a broken connection makes the pool dial a new one.
            },
            Self::Theirs(pool) => match pool.get().await {
                Ok(guard) => Ok(Connection::new(guard.clone())),
                Err(RunError::User(error)) => Err(super::error::convert(&error)),
                Err(RunError::TimedOut) => Err(timed_out()),
            },
        }
    }
}

fn build(manager: Manager, size: u32) -> bb8::Pool<Manager> {
    bb8::Pool::builder()
        .max_size(size)
        // The pool grows only while somebody holds a guard, which nobody does: it has to be asked for.
        .min_idle(size)
        // First in, first out is round robin.
        .queue_strategy(QueueStrategy::Fifo)
        .test_on_check_out(false)
        .idle_timeout(None)
        .max_lifetime(None)
        // The next check dials again; it does not wait for a timer.
        .retry_connection(false)
        .build_unchecked(manager)
}

fn timed_out() -> Error {
    Error::new(ErrorKind::Unavailable, "no connection")
}

/// Dials, and tells those who wait at once when that fails.
#[derive(Clone)]
pub(super) struct Manager {
    client: Client,
    config: AsyncConnectionConfig,
    last_failure: Arc<Mutex<Option<(Instant, RedisError)>>>,
    failures: watch::Sender<Option<Error>>,
}

/// A server that is down is not dialled more often than this.
const REDIAL_PAUSE: Duration = Duration::from_millis(50);

impl Manager {
    pub(super) fn new(client: Client, deadline: Duration) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            // Nobody waits longer than the deadline, so a call that is not answered by then may be forgotten.
            .set_response_timeout(Some(deadline))
            .set_pipeline_buffer_size(1024);
        Self { client, config, last_failure: Arc::default(), failures: watch::Sender::new(None) }
    }

    /// The same for another pool: what failed there is no news here.
    fn afresh(&self) -> Self {
        let Self { client, config, last_failure: _, failures: _ } = self.clone();
        Self { client, config, last_failure: Arc::default(), failures: watch::Sender::new(None) }
    }

    /// Waits for a checkout, but no longer than until a dial fails.
    async fn or_failure<T>(&self, checkout: impl Future<Output = Result<T, RunError<RedisError>>>) -> Result<T, Error> {
        let mut failures = self.failures.subscribe();
        let mut checkout = pin!(checkout);
        let mut failed = pin!(failures.changed());
        let result = poll_fn(|cx| {
            if let Poll::Ready(result) = checkout.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            failed.as_mut().poll(cx).map(|_| None)
        });
        match result.await {
            Some(Ok(guard)) => Ok(guard),
            Some(Err(RunError::User(error))) => Err(super::error::convert(&error)),
            Some(Err(RunError::TimedOut)) => Err(timed_out()),
            None => Err(self.failures.borrow().clone().unwrap_or_else(timed_out)),
        }
    }

    async fn dial(&self) -> Result<MultiplexedConnection, RedisError> {
        let recent = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, error)) = recent
            && at.elapsed() < REDIAL_PAUSE
        {
            return Err(error);
        }
        let result = self.client.get_multiplexed_async_connection_with_config(&self.config).await;
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) =
            result.as_ref().err().map(|error| (Instant::now(), error.clone()));
        result
    }
}

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        let result = self.dial().await;
        if let Err(error) = &result {
            self.failures.send_replace(Some(super::error::convert(error)));
        }
        result.map(Connection::new)
    }

    async fn is_valid(&self, _: &mut Connection) -> Result<(), RedisError> {
        Ok(())
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        connection.is_broken()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own output would show the password.
        f.debug_struct("Manager").field("address", self.client.get_connection_info().addr()).finish_non_exhaustive()
    }
}
