//! The store under test, and what the suite needs to drive it.

use std::{any::Any, fmt, sync::Arc};

use crate::{clock::ManualClock, store::Store};

/// A fresh store for one test of the suite, and the clock that the store reads.
///
/// # Examples
///
/// ```
/// use tollgate::{ManualClock, MemoryStore, testing::Fixture};
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::new().with_clock(clock.clone());
/// let fixture = Fixture::new(store.clone(), clock).with_count_of_keys(move || store.len());
/// # let _ = fixture;
/// ```
pub struct Fixture {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: ManualClock,
    pub(super) outage: Option<Arc<dyn Fn(bool) + Send + Sync>>,
    pub(super) count_of_keys: Option<Arc<dyn Fn() -> usize + Send + Sync>>,
    /// After the store, which may need it until it is dropped.
    pub(super) kept: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Fixture {
    /// Creates a fixture. The store has no counts and takes its time from `clock`, which the suite sets.
    pub fn new(store: impl Store, clock: ManualClock) -> Self {
        Self { store: Arc::new(store), clock, outage: None, count_of_keys: None, kept: Vec::new() }
    }

    /// Sets how the suite makes the store's back end fail (`true`) and recover (`false`). The counts may be lost
    /// meanwhile.
    ///
    /// A store that waits for a network should have an outage. Defaults to none: the tests of failures are then
    /// skipped. The closure may block.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ErrorKind, ManualClock, MemoryStore, store::FailingStore, testing::Fixture};
    ///
    /// let clock = ManualClock::default();
    /// let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    /// store.recover();
    /// let fixture = Fixture::new(store.clone(), clock).with_outage(move |is_down| match is_down {
    ///     true => store.fail(ErrorKind::Unavailable),
    ///     false => store.recover(),
    /// });
    /// # let _ = fixture;
    /// ```
    #[must_use]
    pub fn with_outage(mut self, outage: impl Fn(bool) + Send + Sync + 'static) -> Self {
        self.outage = Some(Arc::new(outage));
        self
    }

    /// Sets how the suite counts the keys that the store keeps, for the tests of law 6. Defaults to none: these tests
    /// are then skipped. The closure may block.
    #[must_use]
    pub fn with_count_of_keys(mut self, count: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        self.count_of_keys = Some(Arc::new(count));
        self
    }

    /// Keeps a value until the test has ended: a server, a container, a temporary directory.
    #[must_use]
    pub fn keep(mut self, value: impl Any + Send + Sync) -> Self {
        self.kept.push(Arc::new(value));
        self
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("store", &self.store).field("clock", &self.clock).finish_non_exhaustive()
    }
}
