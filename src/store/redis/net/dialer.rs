//! Dials a server in the background until there is a connection, and tells a network that has lost the packets of a
//! handshake from a server that is busy.
//!
//! One connection is dialled at a time, with one dial or two.
//!
//! A knock is a connection with a few bytes that are no TLS. A server with TLS closes it at once, and computes nothing.

use std::future::{Future, pending, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{fmt, net::SocketAddr, pin::pin, task::Poll};

use bb8_redis::bb8::ManageConnection;
use redis::RedisError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::{net::TcpStream, sync::Mutex as AsyncMutex, time::Instant};

use super::address::{Address, Settings};
use super::backoff::{Backoff, MAX_PAUSE};
use super::dials::{Dials, Next};
use super::first_dial::{DialProgress, FirstDial};
use super::liveness::{ConnectionLiveness, PoolLiveness};
use super::{connection::Connection, error, redial::Redial, wire::Wire};
use crate::error::{Error, ErrorKind};
use crate::runtime::{deadline::within, latest::Latest};

/// Dials until there is a connection, and publishes the reason when a dial fails.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) address: Address,
    settings: Settings,
    pub(crate) first_dial: FirstDial,
    /// Whether a dial has succeeded. The first connection sends the first command.
    has_connected: Arc<AtomicBool>,
    /// Allows one dial at a time: more would only add to the load of a server that is coming back.
    turn: Arc<AsyncMutex<()>>,
    backoff: Arc<Mutex<Backoff>>,
    liveness: Arc<PoolLiveness>,
    /// The connection that was made last.
    latest: Arc<Mutex<Weak<ConnectionLiveness>>>,
    /// Why the last dial failed, if it did.
    pub(crate) failure: Arc<Latest<Option<Error>>>,
    /// Dead as soon as the pool is dropped.
    pool: Weak<()>,
}

impl Dialer {
    pub(crate) fn new(address: Address, settings: Settings, first_dial: FirstDial, pool: Weak<()>) -> Self {
        let server = settings.servers.server(&address.name());
        let liveness = Arc::new(PoolLiveness::of(server, settings.deadline));
        Self {
            address,
            settings,
            first_dial,
            has_connected: Arc::default(),
            turn: Arc::default(),
            backoff: Arc::default(),
            liveness,
            latest: Arc::default(),
            failure: Arc::new(Latest::new(None)),
            pool,
        }
    }

    /// Sets what dials lost connections again.
    pub(super) fn redial_with(&self, redial: &Arc<Redial>) {
        self.liveness.redial_with(redial);
    }

    fn backoff(&self) -> MutexGuard<'_, Backoff> {
        // A panic under the lock leaves a valid backoff.
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> MutexGuard<'_, Weak<ConnectionLiveness>> {
        // The value is replaced as a whole, so a poisoned lock is usable.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a dial has succeeded.
    async fn succeeded(&self, wire: Wire) -> Connection {
        self.failure.set(None);
        let liveness = Arc::new(ConnectionLiveness::of_wire(Arc::clone(&self.liveness), &wire));
        *self.latest() = Arc::downgrade(&liveness);
        let connection = Connection::new(wire, liveness, self.settings.deadline);
        if !self.has_connected.swap(true, Ordering::Relaxed) {
            connection.send_ahead((self.settings.first_command)()).await;
        }
        self.first_dial.end();
        connection
    }

    /// Ends when a dial must be lost, or leads to a former master. Does not knock before there was a connection, or
    /// while there is one: the knocks of a fleet that starts would take the server more time than they save.
    async fn until_lost(&self, dial: DialProgress) {
        let mut overtaken = pin!(dial.is_overtaken());
        let is_urgent = || {
            let latest = self.latest().upgrade();
            latest.map_or(self.has_connected.load(Ordering::Relaxed), |latest| latest.is_broken())
        };
        let mut lost = pin!(until_lost(dial.clone(), is_urgent));
        poll_fn(|cx| match overtaken.as_mut().poll(cx) {
            Poll::Pending => lost.as_mut().poll(cx),
            ready => ready,
        })
        .await;
    }

    /// Publishes why there is no connection. Returns the meaning of the error.
    fn publish(&self, error: &RedisError) -> ErrorKind {
        let failure = self.address.dial_error(error);
        let kind = failure.kind();
        self.failure.set(Some(failure));
        self.first_dial.end();
        kind
    }
}

impl ManageConnection for Dialer {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        let _turn = self.turn.lock().await;
        let mut dials = Dials::new();
        loop {
            let address = self.address.clone();
            let dial = |progress| async move { address.dial(progress).await };
            let error = match dials.next(&self.backoff, |dial| self.until_lost(dial), dial).await {
                Next::Connected(wire) => return Ok(self.succeeded(wire).await),
                Next::Failed(error) => {
                    match self.publish(&error) {
                        ErrorKind::StoreMisconfigured => self.backoff().was_refused(),
                        _ => self.backoff().failed(),
                    }
                    error
                }
                Next::Slow(error) => {
                    // The first dial may take as long as checks wait for it.
                    if self.first_dial.is_over() || error::is_misconfigured(&error) {
                        self.publish(&error);
                    }
                    error
                }
            };
            if self.pool.strong_count() == 0 {
                return Err(error);
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
            self.failure.set(Some(Error::new(ErrorKind::Unavailable, "connections break at once")));
        }
        connection.is_broken()
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Answers in a row, each to a knock that began after the answer before it. A server handles what its connections have
/// sent in rounds. So it has read all that arrived before the first answer when it gives the second one.
const ANSWERS: u32 = 2;

/// No handshake of TLS begins like this.
const BYTES: &[u8] = b"PING\r\n";

/// Knocks at the server of a dial, whenever it `is_urgent`, until its answers show that the dial is lost. Never ends if
/// no server has accepted the connection of the dial.
pub(super) async fn until_lost(dial: DialProgress, is_urgent: impl Fn() -> bool) {
    match dial.server() {
        Some(address) => until_answered(|| async { is_urgent() && knock(address).await }).await,
        None => pending().await,
    }
}

/// Knocks until the server has answered [`ANSWERS`] times in a row.
pub(super) async fn until_answered<F: Future<Output = bool>>(knock: impl Fn() -> F) {
    let mut answers = 0;
    while answers < ANSWERS {
        let start = Instant::now();
        if within(MAX_PAUSE, knock()).await == Some(true) {
            answers += 1;
        } else {
            answers = 0;
            let _ = within(MAX_PAUSE.saturating_sub(start.elapsed()), pending::<()>()).await;
        }
    }
}

/// Whether the server answers. That it closes the connection is an answer.
async fn knock(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else { return false };
    if stream.write_all(BYTES).await.is_ok() {
        let _ = stream.read_u8().await;
    }
    true
}
