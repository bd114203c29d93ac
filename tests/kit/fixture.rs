//! The store under test, and what the suite needs to drive it.

use std::{any::Any, fmt, sync::Arc};

use tollgate::{ManualClock, store::Store};

/// A fresh store for one test of the suite, and the clock that the store reads.
///
/// # Examples
///
/// ```
/// use tollgate::{ManualClock, MemoryStore};
/// use tollgate_testing::Fixture;
///
/// let clock = ManualClock::default();
/// let store = MemoryStore::new().with_clock(clock.clone());
/// let fixture = Fixture::new(store.clone(), clock)
///     .with_count_of_keys(move || store.keys())
///     .without_outage("the counts are in this process");
/// # let _ = fixture;
/// ```
pub struct Fixture {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: ManualClock,
    pub(super) outage: Part<Arc<dyn Fn(bool) + Send + Sync>>,
    pub(super) count_of_keys: Part<Arc<dyn Fn() -> usize + Send + Sync>>,
    /// After the store, which may need it until it is dropped.
    pub(super) kept: Vec<Arc<dyn Any + Send + Sync>>,
}

/// What the suite needs to drive a store, beside the store and its clock.
pub(super) enum Part<T> {
    Given(T),
    /// With the reason.
    LeftOut(String),
    Missing,
}

impl<T> Part<T> {
    /// A reason without text is no reason.
    fn left_out(reason: String) -> Self {
        if reason.trim().is_empty() { Self::Missing } else { Self::LeftOut(reason) }
    }
}

impl Fixture {
    /// Creates a fixture. The store has no counts and takes its time from `clock`, which the suite sets.
    pub fn new(store: impl Store, clock: ManualClock) -> Self {
        Self { store: Arc::new(store), clock, outage: Part::Missing, count_of_keys: Part::Missing, kept: Vec::new() }
    }

    /// Sets how the suite makes the store's back end fail (`true`) and recover (`false`). The counts may be lost
    /// meanwhile.
    ///
    /// Without an outage, the tests of failures fail, unless [`without_outage`](Self::without_outage) skips them. The
    /// closure may block.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ErrorKind, ManualClock, MemoryStore, store::FailingStore};
    /// use tollgate_testing::Fixture;
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
        self.outage = Part::Given(Arc::new(outage));
        self
    }

    /// Skips the tests of failures, for a store without a back end that could fail. The report shows the `reason`.
    #[must_use]
    pub fn without_outage(mut self, reason: impl Into<String>) -> Self {
        self.outage = Part::left_out(reason.into());
        self
    }

    /// Sets how the suite counts the keys that the store keeps, for the tests of law 6: a store that never drops a key
    /// fills its memory with clients that went away.
    ///
    /// Without a count, these tests fail, unless [`without_count_of_keys`](Self::without_count_of_keys) skips them. The
    /// closure may block.
    ///
    /// If the back end drops keys by its own clock and keeps them for longer than needed, do not count the keys whose
    /// time is over except for that reserve: the test waits for three seconds.
    #[must_use]
    pub fn with_count_of_keys(mut self, count: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        self.count_of_keys = Part::Given(Arc::new(count));
        self
    }

    /// Skips the tests of law 6, for a store whose keys cannot be counted. The report shows the `reason`. Test by other
    /// means that the store drops the keys of clients that went away.
    #[must_use]
    pub fn without_count_of_keys(mut self, reason: impl Into<String>) -> Self {
        self.count_of_keys = Part::left_out(reason.into());
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
