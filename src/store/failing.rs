//! A store that fails on demand, for tests of failure policies.

use std::sync::{Arc, Mutex, PoisonError};

use crate::check::{Charge, Check};
use crate::error::{Error, ErrorKind};
use crate::hold::{HoldChange, SettleAnswer};
use crate::store::contract::{Answer, Store};
use crate::store::{ban::CountChange, memory::MemoryStore};
use crate::{key::Key, policy::Policy, verdict::Verdict};

/// A store that fails until [`recover`](Self::recover) is called, for tests of failure policies.
///
/// It fails from the start, like a Redis that is down when the service starts. After [`recover`](Self::recover), it
/// judges by the counts of a [`MemoryStore`]. Clones share the counts and the failure: keep one clone and give another
/// one to the [`Limiter`](crate::Limiter).
///
/// # Examples
///
/// ```
/// use tollgate::{ErrorKind, Limiter, Policy, store::FailingStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = FailingStore::new();
/// let limiter = Limiter::new(store.clone());
/// let policy = Policy::per_minute("emails", 10)?;
///
/// let error = limiter.check("user:17", &policy, 1).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
///
/// store.recover();
/// assert!(limiter.check("user:17", &policy, 1).await?.is_allowed());
///
/// store.fail(ErrorKind::Deadline);
/// let error = limiter.check("user:17", &policy, 1).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Deadline);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FailingStore {
    memory: MemoryStore,
    failure: Arc<Mutex<Option<ErrorKind>>>,
}

impl FailingStore {
    /// Creates a store that fails with [`ErrorKind::Unavailable`].
    pub fn new() -> Self {
        Self::over(MemoryStore::new())
    }

    /// Creates a store that fails with [`ErrorKind::Unavailable`], and judges by the counts of `memory` after it has
    /// recovered, for example with the test's clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, ManualClock, MemoryStore, store::FailingStore};
    ///
    /// let clock = ManualClock::default();
    /// let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    /// let limiter = Limiter::new(store.clone());
    /// ```
    pub fn over(memory: MemoryStore) -> Self {
        Self { memory, failure: Arc::new(Mutex::new(Some(ErrorKind::Unavailable))) }
    }

    /// Makes every check, every reset and every change of a hold or a count fail at once with an error of this kind. No
    /// count changes.
    pub fn fail(&self, kind: ErrorKind) {
        self.set(Some(kind));
    }

    /// Ends the failure. Checks are judged by what was counted before it.
    pub fn recover(&self) {
        self.set(None);
    }

    fn set(&self, failure: Option<ErrorKind>) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    fn error(&self) -> Option<Error> {
        let kind = *self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        kind.map(|kind| Error::new(kind, "this FailingStore is set to fail"))
    }
}

impl Default for FailingStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for FailingStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        match self.error() {
            Some(error) => Answer::Ready(Err(error)),
            None => self.memory.check(check),
        }
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        match self.error() {
            Some(error) => Answer::Ready(Err(error)),
            None => self.memory.reset(key, policy),
        }
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn has_alternatives(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        match self.error() {
            Some(error) => Answer::Ready(Err(error)),
            None => self.memory.change_hold(hold, change),
        }
    }

    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        match self.error() {
            Some(error) => Answer::Ready(Err(error)),
            None => self.memory.change_count(key, policy, change),
        }
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        match self.error() {
            Some(error) => Answer::Ready(Err(error)),
            None => self.memory.peek(check),
        }
    }

    fn charge_up_to(&self, charge: &Charge) -> Answer<(Verdict, u64)> {
        match self.error() {
            Some(error) => Answer::Ready(Err(error)),
            None => self.memory.charge_up_to(charge),
        }
    }

    fn ready(&self) -> Answer<()> {
        Answer::Ready(self.error().map_or(Ok(()), Err))
    }
}
