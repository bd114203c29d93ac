//! What has passed under rules in shadow mode: it is counted beside the stream, and refuses nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, mem};

use tokio::sync::OwnedSemaphorePermit;
use tollgate::Policy;

use super::{assignment::Entries, bucket::MOST_BUCKETS, grant::Account};
use crate::call::Judge;

/// The requests of one stream that are not counted yet.
#[derive(Debug, Default)]
pub(super) struct Trials(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<Entries, (Account, u64)>,
    is_counting: bool,
}

impl Trials {
    /// Adds what has passed. Beyond the most buckets of a stream, it is left out.
    pub(super) fn add(&self, entries: &Entries, account: Account, units: u64) {
        let waiting = &mut self.state().waiting;
        if let Some((_, before)) = waiting.get_mut(entries) {
            *before = before.saturating_add(units);
        } else if waiting.len() < MOST_BUCKETS {
            waiting.insert(entries.clone(), (account, units));
        }
    }

    /// Counts what waits, in one task for the stream. It keeps the place of the stream until it has ended.
    pub(super) fn count(self: &Arc<Self>, judge: &Arc<Judge>, place: &Arc<OwnedSemaphorePermit>) {
        let mut state = self.state();
        if state.waiting.is_empty() || mem::replace(&mut state.is_counting, true) {
            return;
        }
        let (trials, judge, place) = (Arc::clone(self), Arc::clone(judge), Arc::clone(place));
        tokio::spawn(async move {
            while let Some(counts) = trials.take() {
                for (Account { key, limit, .. }, units) in counts.into_values() {
                    // A count that is lost refuses nothing.
                    drop(judge.limiter.record(key, &limit.policy, units.min(Policy::MAX_LIMIT)).await);
                }
            }
            drop(place);
        });
    }

    /// What waits; `None` ends the task.
    fn take(&self) -> Option<HashMap<Entries, (Account, u64)>> {
        let mut state = self.state();
        state.is_counting = !state.waiting.is_empty();
        state.is_counting.then(|| mem::take(&mut state.waiting))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
