//! The masters of a cluster: a pool for each, and which slot is whose.
//!
//! A master is reached like a single server, through a pool of its own. So a master that is slow, silent or gone holds
//! up no check of another one.
//!
//! The map of slots is read anew when a node sends us elsewhere, does not answer or cannot be reached: in the
//! background, one reading at a time, and at a pace.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::RedisResult;
use tokio::{sync::watch, task::JoinSet};

use super::{
    address::Address,
    cluster::{self, Cluster},
    connection::Connection,
    error,
    first_dial::FirstDial,
    node::Node,
    pace::Pace,
    pool::{OwnPool, PATIENCE},
    slot_map::{At, Layout, Poll, SlotMap},
};
use crate::{
    error::{Error, ErrorKind as Kind},
    runtime::deadline::within,
};

/// What one runtime has of a cluster.
#[derive(Debug)]
pub(super) struct Nodes {
    cluster: Cluster,
    /// Connections to each master.
    size: u32,
    deadline: Duration,
    first_dial_deadline: Duration,
    /// The first reading of the map.
    first_reading: FirstDial,
    /// Whether all masters that it named have been dialled. Those that come later are not waited for.
    has_dialled_all: AtomicBool,
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

impl State {
    /// Whether the caller has to read the map, and whether it is being read.
    fn begin_reading(&mut self) -> (bool, bool) {
        let starts = !self.is_reading && self.pace.pause().is_zero();
        if starts {
            self.is_reading = true;
            self.pace.dial_starts();
        }
        (starts, self.is_reading)
    }
}

/// Subjects that are tried for their slots. A master with a single slot among 16 384 is hardly missed.
const MOST_SUBJECTS: u64 = 1 << 17;

impl Nodes {
    pub(super) fn new(cluster: Cluster, size: u32, deadline: Duration, first_dial_deadline: Duration) -> Self {
        Self {
            cluster,
            size,
            deadline,
            first_dial_deadline,
            first_reading: FirstDial::begin(first_dial_deadline),
            has_dialled_all: AtomicBool::new(false),
            state: Mutex::default(),
            readings: watch::Sender::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No invariant spans a panic: nothing under the lock calls out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first reading of the map, and then the first dial of the master that has a slot, while they are under way.
    pub(super) fn first_dial(self: &Arc<Self>, slot: u16) -> Option<FirstDial> {
        if self.has_dialled_all.load(Ordering::Relaxed) {
            return None;
        }
        let owner = self.state().map.owner(slot).cloned();
        if owner.is_none() && !self.first_reading.is_over() {
            self.read_map();
            return Some(self.first_reading.clone());
        }
        let dial = owner.and_then(|at| self.pool(&at).ok()?.first_dial().cloned());
        let state = self.state();
        let is_dialled = |at: &At| state.pools.get(at).is_some_and(|pool| pool.first_dial().is_none());
        if self.first_reading.is_over() && state.map.masters().iter().all(is_dialled) {
            self.has_dialled_all.store(true, Ordering::Relaxed);
        }
        dial
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
            let is_known = failure.is_none() && self.state().failure.is_some();
            // While the last reading has failed, no check waits for the next one.
            if !self.read_map() || has_read || is_known {
                return Err(failure.unwrap_or_else(|| self.failure()));
            }
            // The sender lives as long as `self`.
            let _ = readings.changed().await;
            has_read = true;
        }
    }

    /// For each master a subject that it counts, found by its slot.
    pub(super) async fn subjects(self: &Arc<Self>, slot_of: impl Fn(u64) -> u16) -> Result<Vec<u64>, Error> {
        // This reads the map.
        self.get(slot_of(0)).await?;
        // A copy, so that no check waits for the lock while many subjects are hashed.
        let map = self.state().map.clone();
        let mut masters: Vec<_> = map.masters().iter().collect();
        let count = masters.len();
        let counts_for_another = |subject: &u64| {
            let owner = map.owner(slot_of(*subject));
            let place = masters.iter().position(|master| Some(*master) == owner);
            place.is_some_and(|place| {
                masters.swap_remove(place);
                true
            })
        };
        Ok((0..MOST_SUBJECTS).filter(counts_for_another).take(count).collect())
    }

    /// A connection to one node.
    pub(super) async fn connect(self: &Arc<Self>, at: At) -> Result<Connection, Error> {
        let pool = self.pool(&at).map_err(|error| error::convert_dial(&error, &self.cluster.passwords()))?;
        let connection = pool.get().await?;
        Ok(connection.of(Node::new(Arc::clone(self), at)))
    }

    fn pool(&self, at: &At) -> RedisResult<Arc<OwnPool>> {
        let mut state = self.state();
        if let Some(pool) = state.pools.get(at) {
            return Ok(Arc::clone(pool));
        }
        let address = Address::Server(Box::new(self.cluster.node(at)?));
        let first_dial = match self.has_dialled_all.load(Ordering::Relaxed) {
            true => FirstDial::over(),
            false => FirstDial::begin(self.first_dial_deadline),
        };
        let pool = Arc::new(OwnPool::open(address, self.size, self.deadline, first_dial));
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
        let (starts, is_reading) = self.state().begin_reading();
        if starts {
            // Of the caller's runtime, and no caller's own: it may take longer than one of them waits. Not under the lock,
            // because a runtime that ends drops the task at once.
            tokio::spawn(read(Reading(Arc::clone(self))));
        }
        is_reading
    }

    /// The map of slots as most masters have it, or as the first of the given nodes has it.
    async fn ask(self: &Arc<Self>) -> Result<Layout, Error> {
        let mut asked = JoinSet::new();
        let masters = self.state().map.masters().to_vec();
        let mut poll = Poll::of(masters.len());
        for at in masters {
            let nodes = Arc::clone(self);
            let ask = async move {
                let mut connection = nodes.connect(at.clone()).await?;
                cluster::layout(&mut connection, &at.host, &nodes.cluster.passwords()).await
            };
            // One that is silent is not waited for, however long the deadline is.
            asked.spawn(within(PATIENCE, ask));
        }
        while !poll.is_decided()
            && let Some(answer) = asked.join_next().await
        {
            // A node that cannot be asked has no say.
            poll.add(answer.ok().flatten().and_then(Result::ok));
        }
        match poll.most() {
            Some(layout) => Ok(layout),
            None => self.cluster.ask(self.deadline).await,
        }
    }

    /// Takes over a map of slots. The pools of masters that it still has go on.
    fn learn(self: &Arc<Self>, layout: &Layout) {
        // What is dropped is dropped after the lock.
        let (new, _gone): (Vec<At>, Vec<_>) = {
            let mut state = self.state();
            let State { map, pools, pace, failure, .. } = &mut *state;
            if map.learn(layout) {
                pace.succeeded();
            }
            // The next reading is not at once, also where two nodes contradict each other again and again.
            pace.failed();
            *failure = None;
            let gone = pools.extract_if(|at, _| !map.masters().contains(at)).collect();
            (map.masters().iter().filter(|at| !pools.contains_key(at)).cloned().collect(), gone)
        };
        for at in new {
            let nodes = Arc::clone(self);
            // Dialled before the first check needs it.
            tokio::spawn(async move { drop(nodes.connect(at).await) });
        }
    }

    /// Takes over what a node has said of one slot. Others may have moved with it.
    pub(super) fn moved(self: &Arc<Self>, slot: u16, at: &At) {
        self.state().map.moved(slot, at);
        self.read_map();
    }
}

/// The duty to read the map; it ends also when the runtime drops the task.
struct Reading(Arc<Nodes>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.state().is_reading = false;
        self.0.first_reading.end();
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
