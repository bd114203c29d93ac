//! The masters of a cluster: a pool for each, and the slot map.
//!
//! Each master is reached like a single server, through a pool of its own. So a master that is slow, silent or lost
//! does not delay the checks of another one.
//!
//! The slot map is refreshed when a node redirects, does not answer or cannot be reached: in the background, one
//! refresh at a time, with a backoff.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::{sync::Semaphore, task::JoinSet};

use super::super::address::{Address, Settings};
use super::super::first_dial::{DialProgress, FirstDial};
use super::super::{backoff::Backoff, connection::Connection, server_pool::ServerPool};
use super::seeds::{self, Seeds};
use super::slot_map::{Layout, Majority, NodeAddress, SlotMap};
use crate::error::{Error, ErrorKind};
use crate::runtime::{deadline::within, latest::Latest, random::RandomMap};

/// The masters of a cluster on one runtime: their pools and their slots.
#[derive(Debug)]
pub(crate) struct Nodes {
    seeds: Seeds,
    /// Number of connections to each master.
    size: u32,
    settings: Settings,
    /// The first load of the slot map, for which checks wait as for the first dial of a server.
    first_load: FirstDial,
    /// Whether all masters of the first slot map have been dialled. Checks do not wait for the dials of later masters.
    has_dialled_all: AtomicBool,
    state: Mutex<State>,
    /// The number of finished refreshes.
    refreshes: Latest<u64>,
}

/// The slot map, the pools, and the progress of refreshes.
#[derive(Debug, Default)]
struct State {
    map: SlotMap,
    pools: RandomMap<NodeAddress, Arc<ServerPool>>,
    is_refreshing: bool,
    backoff: Backoff,
    /// Why the last refresh failed, if it did.
    failure: Option<Error>,
}

impl State {
    /// Returns whether the caller has to start a refresh, and whether one is in progress.
    fn begin_refresh(&mut self) -> (bool, bool) {
        let starts = !self.is_refreshing && self.backoff.pause().is_zero();
        if starts {
            self.is_refreshing = true;
            self.backoff.dial_starts();
        }
        (starts, self.is_refreshing)
    }
}

/// Numbers that are tried to find a slot of every master. A master with one slot of 16 384 is found with a probability
/// of 99.97 %.
const MAX_PROBE_NUMBERS: u64 = 1 << 17;

/// Time for the report of one node, a dial included, unless handshakes take longer.
const LAYOUT_TIMEOUT: Duration = Duration::from_millis(1_200);

impl Nodes {
    pub(crate) fn new(seeds: Seeds, size: u32, settings: Settings) -> Self {
        Self {
            seeds,
            size,
            first_load: FirstDial::begin(settings.first_dial_deadline),
            settings,
            has_dialled_all: AtomicBool::new(false),
            state: Mutex::default(),
            refreshes: Latest::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first load of the slot map, then the first dial of the master that has `slot`, while these are in progress.
    pub(crate) fn first_dial(self: &Arc<Self>, slot: u16) -> Option<FirstDial> {
        if self.has_dialled_all.load(Ordering::Relaxed) {
            return None;
        }
        let owner = self.state().map.owner(slot).cloned();
        if owner.is_none() && !self.first_load.is_over() {
            self.refresh();
            return Some(self.first_load.clone());
        }
        let dial = owner.and_then(|address| self.pool(&address).first_dial().cloned());
        let state = self.state();
        let is_dialled =
            |address: &NodeAddress| state.pools.get(address).is_some_and(|pool| pool.first_dial().is_none());
        if self.first_load.is_over() && state.map.masters().iter().all(is_dialled) {
            self.has_dialled_all.store(true, Ordering::Relaxed);
        }
        dial
    }

    /// A connection to the master that has `slot`, and its address. If that master cannot be reached, the slot map is
    /// refreshed once: another node may have replaced it.
    pub(crate) async fn get(self: &Arc<Self>, slot: u16) -> Result<(Connection, NodeAddress), Error> {
        let seen = self.refreshes.get();
        let mut has_refreshed = false;
        loop {
            let owner = self.state().map.owner(slot).cloned();
            let failure = match owner {
                Some(address) => match self.connect(address.clone()).await {
                    Ok(connection) => return Ok((connection, address)),
                    Err(failure) => Some(failure),
                },
                None => None,
            };
            let is_known = failure.is_none() && self.state().failure.is_some();
            // After a failed refresh, checks fail immediately instead of waiting for the next one.
            if !self.refresh() || has_refreshed || is_known {
                return Err(failure.unwrap_or_else(|| self.failure()));
            }
            self.refreshes.wait_for(|refreshes| *refreshes != seen).await;
            has_refreshed = true;
        }
    }

    /// One number for each master, such that `slot_of(number)` is a slot of that master.
    pub(crate) async fn probe_numbers(self: &Arc<Self>, slot_of: impl Fn(u64) -> u16) -> Result<Vec<u64>, Error> {
        // Loads the slot map if there is none yet.
        self.get(slot_of(0)).await?;
        // A copy, so that no check waits for the lock while many numbers are hashed.
        let map = self.state().map.clone();
        let mut masters: Vec<_> = map.masters().iter().collect();
        let count = masters.len();
        let finds_another = |number: &u64| {
            let owner = map.owner(slot_of(*number));
            let index = masters.iter().position(|master| Some(*master) == owner);
            index.is_some_and(|index| {
                masters.swap_remove(index);
                true
            })
        };
        Ok((0..MAX_PROBE_NUMBERS).filter(finds_another).take(count).collect())
    }

    /// A connection to the node at `address`.
    pub(crate) async fn connect(self: &Arc<Self>, address: NodeAddress) -> Result<Connection, Error> {
        self.pool(&address).get().await
    }

    /// The turns to send calls to the node at `address`.
    pub(crate) fn turns_to_send(&self, address: &NodeAddress) -> Option<Arc<Semaphore>> {
        self.state().pools.get(address).map(|pool| Arc::clone(&pool.turns))
    }

    /// The pool of the node at `address`, which is opened if there is none.
    fn pool(&self, address: &NodeAddress) -> Arc<ServerPool> {
        let mut state = self.state();
        if let Some(pool) = state.pools.get(address) {
            return Arc::clone(pool);
        }
        let server = Address::Server(Box::new(self.seeds.node(address)));
        let first_dial = match self.has_dialled_all.load(Ordering::Relaxed) {
            true => FirstDial::over(),
            false => FirstDial::begin(self.settings.first_dial_deadline),
        };
        let pool = Arc::new(ServerPool::open(server, self.size, self.settings.clone(), first_dial));
        state.pools.insert(address.clone(), Arc::clone(&pool));
        pool
    }

    /// The error of a check whose slot has no master.
    fn failure(&self) -> Error {
        let failure = self.state().failure.clone();
        failure.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no node of the cluster has the slot"))
    }

    /// Starts a refresh of the slot map, unless the backoff forbids one. Returns whether a refresh is in progress.
    pub(crate) fn refresh(self: &Arc<Self>) -> bool {
        let (starts, is_refreshing) = self.state().begin_refresh();
        if starts {
            // A task, because a refresh may take longer than the caller waits. Spawned without the lock, because a
            // runtime that is shutting down drops the task at once.
            tokio::spawn(refresh(Refresh(Arc::clone(self))));
        }
        is_refreshing
    }

    /// The layout that most masters report, or that the first seed to answer reports.
    async fn layout(self: &Arc<Self>, progress: &DialProgress) -> Result<Layout, Error> {
        let mut asked = JoinSet::new();
        let (masters, patience) = {
            let state = self.state();
            (state.map.masters().to_vec(), state.backoff.patience(LAYOUT_TIMEOUT))
        };
        let mut majority = Majority::of(masters.len());
        for address in masters {
            let nodes = Arc::clone(self);
            let ask = async move {
                let mut connection = nodes.connect(address.clone()).await?;
                seeds::layout(&mut connection, &address.host, &nodes.seeds.passwords()).await
            };
            // A silent master is given up after this time, however long the deadline is.
            asked.spawn(within(LAYOUT_TIMEOUT, ask));
        }
        while !majority.is_decided()
            && let Some(answer) = asked.join_next().await
        {
            // A master that gives no answer has no vote.
            majority.add(answer.ok().flatten().and_then(Result::ok));
        }
        match majority.most() {
            Some(layout) => Ok(layout),
            None => self.seeds.layout(patience, self.settings.deadline, progress).await,
        }
    }

    /// Adopts a layout. Pools of masters that the layout still names continue.
    fn adopt(self: &Arc<Self>, layout: &Layout) {
        // The pools of lost masters are dropped after the lock.
        let (new, _lost): (Vec<NodeAddress>, Vec<_>) = {
            let mut state = self.state();
            let State { map, pools, backoff, failure, .. } = &mut *state;
            if map.replace(layout) {
                backoff.succeeded();
            }
            // The next refresh has to pause, also if two nodes keep contradicting each other.
            backoff.failed();
            *failure = None;
            let lost = pools.extract_if(|address, _| !map.masters().contains(address)).collect();
            (map.masters().iter().filter(|address| !pools.contains_key(address)).cloned().collect(), lost)
        };
        for address in new {
            let nodes = Arc::clone(self);
            // The dial starts now, before the first check needs the connection.
            tokio::spawn(async move { drop(nodes.connect(address).await) });
        }
    }

    /// Sets the owner of one slot, as a node has reported, and refreshes the map: other slots may have moved as well.
    pub(crate) fn moved(self: &Arc<Self>, slot: u16, master: &NodeAddress) {
        self.state().map.set_owner(slot, master);
        self.refresh();
    }
}

/// A refresh in progress. Ends when it is dropped, also when the runtime drops its task.
struct Refresh(Arc<Nodes>);

impl Drop for Refresh {
    fn drop(&mut self) {
        self.0.state().is_refreshing = false;
        self.0.first_load.end();
        self.0.refreshes.change(|refreshes| *refreshes += 1);
    }
}

/// Loads the slot map and adopts it, or records the failure.
async fn refresh(refresh: Refresh) {
    let nodes = &refresh.0;
    let progress = DialProgress::default();
    match nodes.layout(&progress).await {
        Ok(layout) => nodes.adopt(&layout),
        Err(error) => {
            let mut state = nodes.state();
            match error.kind() {
                ErrorKind::StoreMisconfigured => state.backoff.was_refused(),
                _ if progress.is_in_handshake() && error.is_late() => state.backoff.was_slow(),
                _ => state.backoff.failed(),
            }
            state.failure = Some(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_refresh_is_in_progress_at_a_time_and_the_next_one_begins_after_a_pause() {
        let mut state = State::default();
        assert_eq!([state.begin_refresh(), state.begin_refresh()], [(true, true), (false, true)]);
        state.is_refreshing = false;
        state.backoff.failed();
        assert_eq!(state.begin_refresh(), (false, false));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(state.begin_refresh(), (true, true));
    }
}
