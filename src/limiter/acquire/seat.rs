//! The seat of a dispatcher that is not a task: the caller that has started it polls it, until another caller joins the
//! queue or the head has to wait. Most callers need not wait, and a task for each would cost more than their checks.
//! The id of a queue, by which seats and pauses are found.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, future::Future, mem, pin::Pin, task::Context};

use tokio::runtime::Handle;

use crate::{calls::Purpose, key::Key, policy::Policy};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Shared by the caller that polls the dispatcher and by its queue.
pub(super) struct Seat {
    /// Where the dispatcher becomes a task.
    runtime: Handle,
    state: Mutex<State>,
}

enum State {
    Seated(Work),
    /// The caller is about to seat the dispatcher, or polls it.
    Away,
    /// As [`Away`](Self::Away), and the dispatcher becomes a task instead of coming back.
    Wanted,
}

/// What a caller that has joined a queue does for its dispatcher.
pub(super) enum Dispatching {
    /// Starts the dispatcher of this number, and polls it in its seat.
    Start(u64, Arc<Seat>),
    /// Makes the dispatcher a task if its caller still polls it.
    Others(Option<Arc<Seat>>),
}

impl Seat {
    /// The seat of a dispatcher of the current runtime, which is about to be seated.
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), state: Mutex::new(State::Away) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves a valid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seats the dispatcher, unless it has become a task meanwhile. Returns whether it is seated.
    pub(super) fn seat(&self, work: Work) -> bool {
        let mut state = self.state();
        if matches!(*state, State::Away) {
            *state = State::Seated(work);
            return true;
        }
        drop(state);
        self.runtime.spawn(work);
        false
    }

    /// Polls the dispatcher without the lock. Returns whether it is seated afterwards.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let Some(mut work) = self.take(State::Away) else { return false };
        work.as_mut().poll(cx).is_pending() && self.seat(work)
    }

    /// Makes the dispatcher a task, now or when its caller has polled it.
    pub(super) fn leave(&self) {
        if let Some(work) = self.take(State::Wanted) {
            self.runtime.spawn(work);
        }
    }

    fn take(&self, next: State) -> Option<Work> {
        match mem::replace(&mut *self.state(), next) {
            State::Seated(work) => Some(work),
            State::Away | State::Wanted => None,
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat")
    }
}

/// A key and a policy. Policies that share their counts share a queue.
///
/// Waiters whom an outage of the store treats differently have queues of their own, because during an outage some would
/// stand in the way of the others.
#[derive(Clone, Debug)]
pub(super) struct QueueId {
    pub(super) key: Key,
    pub(super) policy: Policy,
    pub(super) in_outage: InOutage,
}

/// What becomes of a waiter while the store gives no verdict.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum InOutage {
    /// It asks again, until its time is over.
    AskAgain,
    /// The local fallback judges.
    Fallback,
    /// It gets the store's error. If its caller then asks the share, its checks keep to the share while the store may
    /// be behind.
    Fail { is_local: bool },
}

impl InOutage {
    pub(super) fn purpose(self) -> Purpose {
        match self {
            Self::Fallback | Self::Fail { is_local: true } => Purpose::CHECK.with_fallback(),
            Self::AskAgain | Self::Fail { is_local: false } => Purpose::CHECK,
        }
    }
}

impl QueueId {
    pub(super) fn of(key: &Key, policy: &Policy) -> Self {
        Self { key: key.clone(), policy: policy.clone(), in_outage: InOutage::AskAgain }
    }

    /// All queues of a key and a policy.
    pub(super) fn all(key: &Key, policy: &Policy) -> [Self; 4] {
        let [plain, local] = [false, true].map(|is_local| InOutage::Fail { is_local });
        [InOutage::AskAgain, InOutage::Fallback, plain, local]
            .map(|in_outage| Self { in_outage, ..Self::of(key, policy) })
    }

    /// The id under which a pause of this queue is kept: a pause holds for all queues of its key and policy.
    pub(super) fn pause(&self) -> Self {
        Self::of(&self.key, &self.policy)
    }
}

impl PartialEq for QueueId {
    fn eq(&self, other: &Self) -> bool {
        self.in_outage == other.in_outage && self.key == other.key && self.policy.counts_with(&other.policy)
    }
}

impl Eq for QueueId {}

impl Hash for QueueId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
        self.policy.name_hash().hash(state);
    }
}
