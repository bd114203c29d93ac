//! A memory store behind a network with a latency, whose failure domains can be silent.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{future, sync::Arc, time::Duration};

use tokio::time::sleep;
use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, MemoryStore, Policy};

/// A store that each call needs `LATENCY` to reach, and as long to come back. Clones are one store.
#[derive(Clone, Debug, Default)]
pub(super) struct DistantStore(Arc<State>);

#[derive(Debug, Default)]
struct State {
    memory: MemoryStore,
    /// Whether the first failure domain answers nothing.
    is_silent: AtomicBool,
    /// Whether checks get no verdict, and may have been charged as far as their callers know.
    is_down: AtomicBool,
    changes: AtomicUsize,
}

/// One way.
pub(super) const LATENCY: Duration = Duration::from_millis(10);

/// The prefix of keys of the second failure domain.
const SECOND: &[u8] = b"second";

impl DistantStore {
    pub(super) fn over(memory: MemoryStore) -> Self {
        Self(Arc::new(State { memory, ..State::default() }))
    }

    pub(super) fn silence_first_domain(&self, is_silent: bool) {
        self.0.is_silent.store(is_silent, Ordering::SeqCst);
    }

    pub(super) fn fail_checks(&self, is_down: bool) {
        self.0.is_down.store(is_down, Ordering::SeqCst);
    }

    /// The number of changes of holds that have arrived.
    pub(super) fn changes(&self) -> usize {
        self.0.changes.load(Ordering::SeqCst)
    }

    fn reach<T: Send + 'static>(
        &self,
        key: &Key,
        call: impl FnOnce(&State) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (store, domain) = (self.clone(), self.failure_domain_of(key));
        Answer::pending(async move {
            sleep(LATENCY).await;
            if domain == 0 && store.0.is_silent.load(Ordering::SeqCst) {
                return future::pending().await;
            }
            let answer = call(&store.0);
            sleep(LATENCY).await;
            match answer {
                Answer::Ready(result) => result,
                Answer::Pending(pending) => pending.await,
            }
        })
    }
}

impl Store for DistantStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let sent = check.clone();
        self.reach(&check.charges()[0].key, move |state| match state.is_down.load(Ordering::SeqCst) {
            true => Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "reset").charge_unknown())),
            false => state.memory.check(&sent),
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.memory.reset(key, policy)
    }

    fn failure_domains(&self) -> usize {
        2
    }

    fn failure_domain_of(&self, key: &Key) -> usize {
        usize::from(key.encoded().windows(SECOND.len()).any(|part| part == SECOND))
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let sent = hold.clone();
        self.reach(&hold.key, move |state| {
            state.changes.fetch_add(1, Ordering::SeqCst);
            state.memory.change_hold(&sent, change)
        })
    }
}
