//! A cluster: a pool for each master, and which slot is whose.
//!
//! A master of a cluster is reached like a single server, through a pool of its own. So a master that is slow, silent or
//! gone holds up nobody who asks another one.
//!
//! A node that does not have a slot says who does (MOVED, ASK) and has not run the command. That is followed here.
//! Nothing else is ever sent twice (law 9). The map of slots is read anew when a node sends us elsewhere, does not answer
//! or cannot be reached: in the background, one reading at a time, and at a pace.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult,
    ServerErrorKind, Value,
};
use tokio::{sync::watch, task::JoinSet};

use super::{
    address::{self, Address, Security},
    connection::Connection,
    error,
    health::{Health, Network},
    pace::Pace,
    pool::{OwnPool, PATIENCE},
    resp,
    slot_map::{At, Layout, Poll, SlotMap},
};
use crate::{
    deadline::within,
    error::{Error, ErrorKind as Kind},
};

/// The nodes of a cluster that were given; the others are found through them.
#[derive(Clone)]
pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
}

impl Cluster {
    pub(super) fn new(nodes: impl IntoIterator<Item: AsRef<str>>, security: &Security) -> RedisResult<Self> {
        let seeds: Vec<_> =
            nodes.into_iter().map(|url| address::info(url.as_ref(), security)).collect::<RedisResult<_>>()?;
        if seeds.is_empty() {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no node of a cluster")));
        }
        if seeds.iter().any(|seed| matches!(seed.addr(), ConnectionAddr::Unix(_))) {
            return Err(RedisError::from((
                ErrorKind::InvalidClientConfig,
                "the nodes of a cluster are reached by TCP",
            )));
        }
        if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
            return Err(RedisError::from((ErrorKind::InvalidClientConfig, "a cluster has no database but 0")));
        }
        Ok(Self { seeds })
    }

    /// The way to a node that another one has named. Login and TLS are those of the first node that was given.
    fn node(&self, At { host, port }: &At) -> RedisResult<Client> {
        let first = &self.seeds[0];
        let (host, port) = (host.clone(), *port);
        let addr = match first.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(first.clone().set_addr(addr))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.seeds.iter().map(|seed| seed.addr().to_string())).finish()
    }
}

/// What one runtime has of a cluster.
#[derive(Debug)]
pub(super) struct Nodes {
    cluster: Cluster,
    /// Connections to each master.
    size: u32,
    deadline: Duration,
    state: Mutex<State>,
    /// How many times the map of slots has been asked for.
    readings: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    map: SlotMap,
    pools: HashMap<At, Arc<OwnPool>>,
    is_reading: bool,
    pace: Pace,
    /// Why the last reading failed, if it did.
    failure: Option<Error>,
}

/// Who is asked for a slot.
#[derive(Clone, Debug)]
pub(super) struct Node {
    nodes: Arc<Nodes>,
    at: At,
}

/// While slots move, a node may send us on to one that sends us on. More than this is a quarrel.
const REDIRECTIONS: usize = 4;

impl Nodes {
    pub(super) fn new(cluster: Cluster, size: u32, deadline: Duration) -> Self {
        Self { cluster, size, deadline, state: Mutex::default(), readings: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No invariant spans a panic: nothing under the lock calls out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to the master that has a slot. If it cannot be reached, another one may have taken its place.
    pub(super) async fn get(self: &Arc<Self>, slot: u16) -> Result<Connection, Error> {
        let mut readings = self.readings.subscribe();
        let mut has_read = false;
        loop {
            let owner = self.state().map.owner(slot).cloned();
            let failure = match owner {
                Some(at) => match self.connect(at).await {
                    Ok(connection) => return Ok(connection),
                    Err(failure) => Some(failure),
                },
                None => None,
            };
            if has_read || !self.read_map() {
                return Err(failure.unwrap_or_else(|| self.failure()));
            }
            // The sender lives as long as `self`.
            let _ = readings.changed().await;
            has_read = true;
        }
    }

    async fn connect(self: &Arc<Self>, at: At) -> Result<Connection, Error> {
        let pool = self.pool(&at).map_err(|error| error::convert_dial(&error))?;
        let connection = pool.get().await?;
        Ok(connection.of(Node { nodes: Arc::clone(self), at }))
    }

    fn pool(&self, at: &At) -> RedisResult<Arc<OwnPool>> {
        let mut state = self.state();
        if let Some(pool) = state.pools.get(at) {
            return Ok(Arc::clone(pool));
        }
        let address = Address::Server(Box::new(self.cluster.node(at)?));
        let pool = Arc::new(OwnPool::open(address, self.size, self.deadline));
        state.pools.insert(at.clone(), Arc::clone(&pool));
        Ok(pool)
    }

    /// Why a slot has no master.
    fn failure(&self) -> Error {
        let failure = self.state().failure.clone();
        failure.unwrap_or_else(|| Error::new(Kind::Unavailable, "no node of the cluster has the slot"))
    }

    /// Has the map of slots read anew, unless that was done a moment ago. Tells whether it is being read.
    pub(super) fn read_map(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        if !state.is_reading && state.pace.pause().is_zero() {
            state.is_reading = true;
            state.pace.dial_starts();
            // Of the caller's runtime, and no caller's own: it may take longer than one of them waits.
            tokio::spawn(read(Reading(Arc::clone(self))));
        }
        state.is_reading
    }

    /// The map of slots as most masters have it, or as the first of the given nodes has it.
    async fn ask(self: &Arc<Self>) -> Result<Layout, Error> {
        let mut asked = JoinSet::new();
        let masters = self.state().map.masters().to_vec();
        let mut poll = Poll::of(masters.len());
        for at in masters {
            let nodes = Arc::clone(self);
            asked.spawn(async move { layout(&mut nodes.connect(at.clone()).await?, &at.host).await });
        }
        while !poll.is_decided()
            && let Some(answer) = asked.join_next().await
        {
            // A node that cannot be asked has no say.
            poll.add(answer.ok().and_then(Result::ok));
        }
        match poll.most() {
            Some(layout) => Ok(layout),
            None => self.ask_seeds().await,
        }
    }

    async fn ask_seeds(&self) -> Result<Layout, Error> {
        let mut asked = JoinSet::new();
        for seed in self.cluster.seeds.clone() {
            let (host, deadline) = (seed.addr().to_string(), self.deadline);
            asked.spawn(async move {
                let host = host.rsplit_once(':').map_or(host.as_str(), |(host, _)| host);
                layout(&mut dial(seed, deadline).await?, host).await
            });
        }
        let mut failure = None;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(layout)) => return Ok(layout),
                Ok(Err(error)) => failure = Some(error),
                // The runtime ends.
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| Error::new(Kind::Unavailable, "no node of the cluster answers")))
    }

    /// Takes over a map of slots. The pools of masters that it still has go on.
    fn learn(self: &Arc<Self>, layout: &Layout) {
        let new: Vec<At> = {
            let mut state = self.state();
            let State { map, pools, pace, failure, .. } = &mut *state;
            // Somebody may ask again at once if that has changed something.
            if map.learn(layout) {
                pace.succeeded()
            } else {
                pace.failed()
            }
            *failure = None;
            pools.retain(|at, _| map.masters().contains(at));
            map.masters().iter().filter(|at| !pools.contains_key(at)).cloned().collect()
        };
        for at in new {
            let nodes = Arc::clone(self);
            // Dialled before the first check needs it.
            tokio::spawn(async move { drop(nodes.connect(at).await) });
        }
    }

    async fn follow(self: &Arc<Self>, Redirection { slot, at, .. }: &Redirection) -> RedisResult<Connection> {
        let gone = |_| RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot's node is gone"));
        if let Some(slot) = slot {
            self.state().map.moved(*slot, at);
            // Others may have moved with it.
            self.read_map();
        }
        self.connect(at.clone()).await.map_err(gone)
    }
}

impl Node {
    pub(super) fn is_redirection(&self, result: &RedisResult<Value>) -> bool {
        Redirection::read(result, &self.at.host).is_some()
    }

    /// Sends a command on to where a node says that its slot is. A connection that asked at the wrong place leads to the
    /// right one afterwards, for what follows from the command.
    pub(super) async fn follow(
        mut self,
        connection: &mut Connection,
        command: &Cmd,
        mut result: RedisResult<Value>,
    ) -> RedisResult<Value> {
        for _ in 0..REDIRECTIONS {
            let Some(redirection) = Redirection::read(&result, &self.at.host) else { return result };
            let mut next = self.nodes.follow(&redirection).await?;
            self.at = redirection.at;
            if redirection.slot.is_some() {
                result = next.send(command).await;
                *connection = next;
            } else {
                result = next.send_asking(command).await;
            }
        }
        match Redirection::read(&result, &self.at.host) {
            Some(_) => Err(RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot is on the move"))),
            None => result,
        }
    }

    /// Notes that the node did not answer, or does not serve its slots: another one may have taken its place.
    pub(super) fn failed(&self, error: &RedisError) {
        if error.is_io_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown) {
            self.nodes.read_map();
        }
    }
}

/// The duty to read the map; it ends also when the runtime drops the task.
struct Reading(Arc<Nodes>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.state().is_reading = false;
        self.0.readings.send_modify(|readings| *readings += 1);
    }
}

async fn read(reading: Reading) {
    let nodes = &reading.0;
    match nodes.ask().await {
        Ok(layout) => nodes.learn(&layout),
        Err(error) => {
            let mut state = nodes.state();
            match error.kind() {
                Kind::Misconfigured => state.pace.was_refused(),
                _ => state.pace.failed(),
            }
            state.failure = Some(error);
        }
    }
}

/// A connection that is used once.
async fn dial(seed: ConnectionInfo, deadline: Duration) -> Result<Connection, Error> {
    let dialled = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        resp::dial(&Client::open(seed)?, config, &Arc::default()).await
    };
    let late = || Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
    let wire = within(PATIENCE, dialled).await.unwrap_or_else(late);
    let health = Health::new(Arc::new(Network::new(deadline)), Arc::default());
    Ok(Connection::new(wire.map_err(|error| error::convert_dial(&error))?, Arc::new(health), deadline))
}

/// What a node says of the slots.
async fn layout(connection: &mut Connection, host: &str) -> Result<Layout, Error> {
    let reply = connection.query::<Value>(redis::cmd("CLUSTER").arg("SLOTS")).await;
    let reply = reply.map_err(|error| error::convert(&error))?;
    Layout::read(&reply, host).ok_or_else(|| Error::new(Kind::Unavailable, "the cluster has no slots yet"))
}

/// Where a node sends us.
struct Redirection {
    /// What has moved; `None` if it is for one command.
    slot: Option<u16>,
    at: At,
}

impl Redirection {
    /// Reads the error of the node at `host`, if it is one.
    fn read<T>(result: &RedisResult<T>, host: &str) -> Option<Self> {
        let error = result.as_ref().err()?;
        let asks = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => true,
            ErrorKind::Server(ServerErrorKind::Moved) => false,
            _ => return None,
        };
        let (address, slot) = error.redirect_node()?;
        let (named, port) = address.rsplit_once(':')?;
        Some(Self { slot: (!asks).then_some(slot), at: At::named(named, port.parse().ok()?, host) })
    }
}
