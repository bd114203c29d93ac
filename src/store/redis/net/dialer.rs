//! Dials a server in the background until there is a connection.
//!
//! One dial runs at a time. A dial that exceeds the longest pause counts as failed, because its packets may be lost,
//! but may continue beside the next dial, because the server may be distant or busy.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bb8_redis::bb8::ManageConnection;
use redis::{AsyncConnectionConfig, RedisError, RedisResult};
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::{
    address::Address,
    backoff::{Backoff, MAX_PAUSE},
    connection::Connection,
    first_dial::FirstDial,
    liveness::{ConnectionLiveness, PoolLiveness},
    settings::Settings,
    wire::{DIAL_TIMEOUT, Wire},
};
use crate::{
    error::{Error, ErrorKind},
    runtime::deadline::within,
};

/// Dials until there is a connection, and publishes the reason when a dial fails.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) address: Address,
    config: AsyncConnectionConfig,
    settings: Settings,
    pub(crate) first_dial: FirstDial,
    /// Whether a dial has succeeded. The first connection sends the first command.
    has_connected: Arc<AtomicBool>,
    /// Allows one dial at a time: more would only add to the load of a server that is coming back.
    turn: Arc<AsyncMutex<()>>,
    backoff: Arc<Mutex<Backoff>>,
    liveness: Arc<PoolLiveness>,
    /// Why the last dial failed, if it did.
    pub(crate) failure: watch::Sender<Option<Error>>,
    /// Dead as soon as the pool is dropped.
    pool: Weak<()>,
}

/// Dials in progress. [`Dialer::connect`] polls them; they are no tasks, so that an outage leaves no tasks behind.
type Dials = Vec<Pin<Box<dyn Future<Output = RedisResult<Wire>> + Send>>>;

impl Dialer {
    pub(crate) fn new(address: Address, settings: Settings, first_dial: FirstDial, pool: Weak<()>) -> Self {
        let config = AsyncConnectionConfig::new()
            // A dial takes a few round trips, a call takes one.
            .set_connection_timeout(Some(DIAL_TIMEOUT.max(settings.deadline.saturating_mul(4))))
            // [`Connection`] has its own deadline, which does not count time in which the process did not run.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        Self {
            address,
            config,
            settings,
            first_dial,
            has_connected: Arc::default(),
            turn: Arc::default(),
            backoff: Arc::default(),
            liveness: Arc::new(PoolLiveness::new(settings.deadline)),
            failure: watch::Sender::new(None),
            pool,
        }
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        // A panic under the lock leaves a valid backoff.
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a dial has succeeded.
    async fn succeeded(&self, wire: Wire) -> Connection {
        self.backoff().succeeded();
        self.failure.send_replace(None);
        let liveness = Arc::new(ConnectionLiveness::new(Arc::clone(&self.liveness), wire.closed));
        let connection = Connection::new(wire.connection, liveness, self.settings.deadline);
        if !self.has_connected.swap(true, Ordering::Relaxed) {
            connection.send_ahead((self.settings.first_command)()).await;
        }
        self.first_dial.end();
        connection
    }

    /// Records that a dial has failed, and publishes the reason.
    async fn failed(&self, error: &RedisError) {
        let failure = self.address.dial_error(error, self.has_connected.load(Ordering::Relaxed)).await;
        match failure.kind() {
            ErrorKind::Misconfigured => self.backoff().was_refused(),
            _ => self.backoff().failed(),
        }
        self.failure.send_replace(Some(failure));
        self.first_dial.end();
    }
}

impl ManageConnection for Dialer {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        let _turn = self.turn.lock().await;
        let mut dials = Dials::new();
        loop {
            let pause = self.backoff().pause();
            let result = match first_of(&mut dials, pause).await {
                Some(result) => result,
                None => {
                    self.backoff().dial_starts();
                    let Self { address, config, .. } = self.clone();
                    dials.push(Box::pin(async move { address.dial(config).await }));
                    first_of(&mut dials, MAX_PAUSE).await.unwrap_or_else(|| Err(too_slow()))
                }
            };
            // Of the slow dials, the oldest and the newest continue.
            if dials.len() > 2 {
                drop(dials.remove(1));
            }
            match result {
                Ok(wire) => return Ok(self.succeeded(wire).await),
                Err(error) => {
                    self.failed(&error).await;
                    if self.pool.strong_count() == 0 {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn is_valid(&self, _: &mut Connection) -> Result<(), RedisError> {
        Ok(())
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        if connection.broke_young() {
            // For example, the server is a replica and refuses every command. The next dial has to pause, and checks
            // must fail without waiting for the dial.
            self.backoff().failed();
            self.failure.send_replace(Some(Error::new(ErrorKind::Unavailable, "connections break at once")));
        }
        connection.is_broken()
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The result of the dial that ends first, or `None` after `time`.
async fn first_of(dials: &mut Dials, time: Duration) -> Option<RedisResult<Wire>> {
    let ended = poll_fn(|cx| {
        let ready = dials.iter_mut().enumerate().find_map(|(index, dial)| match dial.as_mut().poll(cx) {
            Poll::Ready(result) => Some((index, result)),
            Poll::Pending => None,
        });
        let Some((index, result)) = ready else { return Poll::Pending };
        drop(dials.remove(index));
        Poll::Ready(result)
    });
    within(time, ended).await
}

/// The error of a dial that exceeds [`MAX_PAUSE`].
fn too_slow() -> RedisError {
    RedisError::from(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {MAX_PAUSE:?}")))
}
