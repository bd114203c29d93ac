//! A few multiplexed connections in a bb8 pool.
//!
//! A multiplexed connection serves any number of callers at once, so a checkout is only a look: the connection is
//! cloned and the guard given back before a single command is sent. Checkouts never wait for one another, no PING is
//! sent, and a connection that broke is thrown away at the next look.
//!
//! A connection that is missing is dialled in the background until there is one again, one at a time. A dial that takes
//! long counts as failed, for what it was sent may be lost, and may go on beside the next one, for the server may be far
//! away or busy with many. While the last dial has failed, nobody waits for the next one.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bb8_redis::{
    RedisConnectionManager,
    bb8::{self, ManageConnection, QueueStrategy, RunError},
};
use redis::{AsyncConnectionConfig, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::sync::{Mutex as Turn, watch};

use super::{
    address::Address,
    connection::Connection,
    error,
    first_dial::FirstDial,
    health::{Health, Network},
    pace::{LONGEST, Pace},
    script,
    words::Passwords,
};
#[cfg(feature = "cluster")]
use super::{cluster::Cluster, nodes::Nodes};
use crate::{
    error::{Error, ErrorKind},
    runtime::deadline::within,
};

/// Where connections come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A pool of our own.
    Dial { address: Address, size: u32 },
    /// One for each master.
    #[cfg(feature = "cluster")]
    Cluster { cluster: Cluster, size: u32 },
    /// One that the user has already.
    Pool(bb8::Pool<RedisConnectionManager>),
}

/// A pool at work. It belongs to the runtime that it was opened on, for its tasks do.
#[derive(Debug)]
pub(super) enum Pool {
    Own(Box<OwnPool>),
    #[cfg(feature = "cluster")]
    Nodes(Arc<Nodes>),
    /// Which looks after its connections itself.
    Theirs {
        pool: bb8::Pool<RedisConnectionManager>,
        network: Arc<Network>,
        deadline: Duration,
    },
}

#[derive(Debug)]
pub(super) struct OwnPool {
    manager: Manager,
    pool: bb8::Pool<Manager>,
    _wanted: Arc<()>,
}

impl Source {
    #[cfg(feature = "cluster")]
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }

    /// What no error is to show. A pool of the user's does not tell its password.
    pub(super) fn passwords(&self) -> Passwords<'_> {
        match self {
            Self::Dial { address, .. } => address.passwords(),
            #[cfg(feature = "cluster")]
            Self::Cluster { cluster, .. } => cluster.passwords(),
            Self::Pool(_) => Passwords::default(),
        }
    }

    /// Opens a pool on the current runtime. The first dial may take `first_dial_deadline`.
    pub(super) fn open(&self, deadline: Duration, first_dial_deadline: Duration) -> Pool {
        let first_dial = FirstDial::begin(first_dial_deadline);
        match self {
            Self::Dial { address, size } => {
                Pool::Own(Box::new(OwnPool::open(address.clone(), *size, deadline, first_dial)))
            }
            #[cfg(feature = "cluster")]
            Self::Cluster { cluster, size } => {
                Pool::Nodes(Arc::new(Nodes::new(cluster.clone(), *size, deadline, first_dial_deadline)))
            }
            Self::Pool(pool) => {
                Pool::Theirs { pool: pool.clone(), network: Arc::new(Network::new(Duration::MAX)), deadline }
            }
        }
    }
}

impl Pool {
    /// The first dial of the server that has a slot, while it is under way.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all slots"))]
    pub(super) fn first_dial(&self, slot: u16) -> Option<FirstDial> {
        match self {
            Self::Own(own) => own.first_dial().cloned(),
            #[cfg(feature = "cluster")]
            Self::Nodes(nodes) => nodes.first_dial(slot),
            // Their owner has made them.
            Self::Theirs { .. } => None,
        }
    }

    /// For each master a subject that it counts, found by its slot.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all slots"))]
    pub(super) async fn subjects(&self, slot_of: impl Fn(u64) -> u16) -> Result<Vec<u64>, Error> {
        match self {
            #[cfg(feature = "cluster")]
            Self::Nodes(nodes) => nodes.subjects(slot_of).await,
            _ => Ok(vec![0]),
        }
    }

    /// A connection that nobody has found broken, to the server that has a slot.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "one server has all slots"))]
    pub(super) async fn get(&self, slot: u16) -> Result<Connection, Error> {
        match self {
            Self::Own(own) => own.get().await,
            #[cfg(feature = "cluster")]
            Self::Nodes(nodes) => nodes.get(slot).await,
            Self::Theirs { pool, network, deadline } => match pool.get().await {
                Ok(guard) => {
                    let health = Health::new(Arc::clone(network), Arc::default());
                    Ok(Connection::new(guard.clone(), Arc::new(health), *deadline))
                }
                Err(RunError::User(error)) => Err(error::convert_dial(&error, &Passwords::default())),
                Err(RunError::TimedOut) => Err(timed_out()),
            },
        }
    }
}

impl OwnPool {
    /// Opens a pool on the current runtime, which dials at once.
    pub(super) fn open(address: Address, size: u32, deadline: Duration, first_dial: FirstDial) -> Self {
        let wanted = Arc::new(());
        let manager = Manager::new(address, deadline, first_dial, Arc::downgrade(&wanted));
        let pool = build(manager.clone(), size);
        Self { manager, pool, _wanted: wanted }
    }

    /// The first dial, while it is under way.
    pub(super) fn first_dial(&self) -> Option<&FirstDial> {
        Some(&self.manager.first_dial).filter(|dial| !dial.is_over())
    }

    pub(super) async fn get(&self) -> Result<Connection, Error> {
        loop {
            let guard = self.or_failure(self.pool.get()).await?;
            if !guard.is_broken() {
                return Ok(guard.clone());
            }
            // Dropping the guard of a broken connection makes the pool dial a new one.
        }
    }

    /// Waits for a checkout, but not while there is no connection and the last dial has failed.
    async fn or_failure<T>(&self, checkout: impl Future<Output = Result<T, RunError<RedisError>>>) -> Result<T, Error> {
        let mut failures = self.manager.failure.subscribe();
        let mut checkout = pin!(checkout);
        let mut failed = pin!(failures.wait_for(Option::is_some));
        let result = poll_fn(|cx| {
            if let Poll::Ready(result) = checkout.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            // Another thread may be looking at the one that there is; it gives it back at once.
            if self.pool.state().connections > 0 {
                return Poll::Pending;
            }
            failed.as_mut().poll(cx).map(|_| None)
        });
        match result.await {
            Some(Ok(guard)) => Ok(guard),
            Some(Err(RunError::User(error))) => Err(error::convert_dial(&error, &self.manager.address.passwords())),
            Some(Err(RunError::TimedOut)) => Err(timed_out()),
            None => Err(self.manager.failure.borrow().clone().unwrap_or_else(timed_out)),
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
        // The manager does that, at its own pace.
        .retry_connection(false)
        .build_unchecked(manager)
}

/// A dial that has had no end by then is given up, or later if the deadline is long: to a server that is far away, behind
/// TLS, or just elected and dialled by everybody, it may take a while.
pub(super) const PATIENCE: Duration = Duration::from_millis(1_200);

/// No tasks of their own, for an outage is to leave nothing behind.
type Dials = Vec<Pin<Box<dyn Future<Output = RedisResult<Dialled>> + Send>>>;

/// A wire, and whether its other end has closed it since.
type Dialled = (MultiplexedConnection, Arc<AtomicBool>);

/// The first dial that ends, or `None` after `time`.
async fn first_of(dials: &mut Dials, time: Duration) -> Option<RedisResult<Dialled>> {
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

fn takes_long() -> RedisError {
    RedisError::from(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {LONGEST:?}")))
}

fn timed_out() -> Error {
    Error::new(ErrorKind::Unavailable, "no connection")
}

/// Dials until there is a connection, and tells those who wait when that fails.
#[derive(Clone)]
struct Manager {
    address: Address,
    config: AsyncConnectionConfig,
    deadline: Duration,
    first_dial: FirstDial,
    /// Whether the script has been sent.
    has_script: Arc<AtomicBool>,
    /// One connection at a time: more would only add to the load of a server that is coming back.
    turn: Arc<Turn<()>>,
    pace: Arc<Mutex<Pace>>,
    network: Arc<Network>,
    /// Why the last dial failed, if it did.
    failure: watch::Sender<Option<Error>>,
    /// Gone as soon as nobody wants a connection any more.
    wanted: Weak<()>,
}

impl Manager {
    fn new(address: Address, deadline: Duration, first_dial: FirstDial, wanted: Weak<()>) -> Self {
        let config = AsyncConnectionConfig::new()
            // A dial is a few round trips where a call is one.
            .set_connection_timeout(Some(PATIENCE.max(deadline.saturating_mul(4))))
            // A connection has a deadline of its own, which does not count the time in which the process did not run.
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let network = Arc::new(Network::new(deadline));
        let failure = watch::Sender::new(None);
        Self {
            address,
            config,
            deadline,
            first_dial,
            has_script: Arc::default(),
            turn: Arc::default(),
            pace: Arc::default(),
            network,
            failure,
            wanted,
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        // No invariant spans a panic.
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ManageConnection for Manager {
    type Connection = Connection;
    type Error = RedisError;

    async fn connect(&self) -> Result<Connection, RedisError> {
        let _turn = self.turn.lock().await;
        let mut dials = Dials::new();
        loop {
            let pause = self.pace().pause();
            let result = match first_of(&mut dials, pause).await {
                Some(result) => result,
                None => {
                    self.pace().dial_starts();
                    let Self { address, config, .. } = self.clone();
                    let closed = Arc::<AtomicBool>::default();
                    dials.push(Box::pin(async move { Ok((address.dial(config, &closed).await?, closed)) }));
                    first_of(&mut dials, LONGEST).await.unwrap_or_else(|| Err(takes_long()))
                }
            };
            // Those that take their time may go on: the oldest, and the last one.
            if dials.len() > 2 {
                drop(dials.remove(1));
            }
            match result {
                Ok((wire, closed)) => {
                    self.pace().succeeded();
                    self.failure.send_replace(None);
                    let health = Arc::new(Health::new(Arc::clone(&self.network), closed));
                    let connection = Connection::new(wire, health, self.deadline);
                    if !self.has_script.swap(true, Ordering::Relaxed) {
                        script::send_ahead(&connection).await;
                    }
                    self.first_dial.end();
                    return Ok(connection);
                }
                Err(error) => {
                    let first = !self.has_script.load(Ordering::Relaxed);
                    let failure = self.address.failure_of(&error, first).await;
                    match failure.kind() {
                        ErrorKind::Misconfigured => self.pace().was_refused(),
                        _ => self.pace().failed(),
                    }
                    self.failure.send_replace(Some(failure));
                    self.first_dial.end();
                    if self.wanted.strong_count() == 0 {
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
            // Say, a replica that refuses every command: not to be dialled for each check, nor to be waited for.
            self.pace().failed();
            self.failure.send_replace(Some(Error::new(ErrorKind::Unavailable, "connections break at once")));
        }
        connection.is_broken()
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("address", &self.address).finish_non_exhaustive()
    }
}
