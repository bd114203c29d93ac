//! The suite: which tests run on which store.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::report::{Report, TestOutcome, TestResult};
use crate::tested_store::{LastCall, TestedStore};
use crate::{failure::NotPassed, feature::Feature, fixture::Fixture, isolation, store_tests};

type Factory = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Fixture>>> + Send + Sync>;

/// The tests that every store has to pass, to be [run](Self::run) on the stores of a factory. See [`store_suite`].
#[must_use = "the suite does nothing until `run` is awaited"]
pub struct StoreSuite {
    factory: Factory,
    without: Vec<Feature>,
    only: Option<&'static str>,
    time_limit: Duration,
}

/// Creates the suite for the stores that `factory` makes: one for each test, fresh and with its own clock.
///
/// The factory runs in the tokio runtime of the test, which has several threads, so connections that the store opens
/// belong to that runtime.
///
/// # Examples
///
/// ```
/// use tollgate::{ManualClock, MemoryStore};
/// use tollgate_testing::{Fixture, store_suite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let fixture = || async {
///     let clock = ManualClock::default();
///     let store = MemoryStore::new().with_clock(clock.clone());
///     Fixture::new(store.clone(), clock)
///         .with_count_of_keys(move || store.keys())
///         .without_outage("the counts are in this process")
/// };
/// store_suite(fixture).run().await.assert_passed();
/// # }
/// ```
pub fn store_suite<F, Fut>(factory: F) -> StoreSuite
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Fixture> + 'static,
{
    let factory: Factory = Arc::new(move || Box::pin(factory()));
    StoreSuite { factory, without: Vec::new(), only: None, time_limit: StoreSuite::TIME_LIMIT }
}

impl StoreSuite {
    /// The default of [`with_time_limit`](Self::with_time_limit): one minute, because a test on a networked store sends
    /// thousands of checks one after another.
    pub const TIME_LIMIT: Duration = Duration::from_secs(60);

    /// Skips what needs a feature that the store leaves out. Call it once for each feature.
    ///
    /// A store without a feature should refuse policies that use the feature, or say in its docs how it counts them.
    pub fn without(mut self, feature: Feature) -> Self {
        self.without.push(feature);
        self
    }

    /// Runs only the test with this name, to look into a failure. The report is empty, and so does not
    /// [pass](Report::assert_passed), if no test has this name.
    pub fn only(mut self, name: &'static str) -> Self {
        self.only = Some(name);
        self
    }

    /// Sets how long one test may take before it has failed. Defaults to [`TIME_LIMIT`](Self::TIME_LIMIT).
    pub fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// The names of all tests, in their order.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_testing::StoreSuite;
    ///
    /// assert!(StoreSuite::names().any(|name| name == "law_3_a_denied_check_changes_no_count"));
    /// ```
    pub fn names() -> impl Iterator<Item = &'static str> {
        store_tests::ALL.iter().map(|test| test.name)
    }

    /// Runs the tests one after another, each on a fresh store and on a thread of its own.
    ///
    /// A store that panics fails the test. A store that does not answer fails the test at the time limit; if it blocks
    /// its thread, the thread stays behind until the process ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the test that is running goes on in the background, and no other starts.
    pub async fn run(self) -> Report {
        let without: Arc<[Feature]> = self.without.into();
        let mut tests = Vec::new();
        for test in store_tests::ALL.iter().filter(|test| self.only.is_none_or(|name| name == test.name)) {
            let last_call = LastCall::default();
            let (factory, without, run, call) = (self.factory.clone(), without.clone(), test.run, last_call.clone());
            let start = move || -> Pin<Box<dyn Future<Output = _>>> {
                Box::pin(async move { run(TestedStore::new(factory().await, without, call)).await })
            };
            let outcome = match isolation::run(test.name, self.time_limit, last_call, Box::new(start)).await {
                Ok(()) => TestOutcome::Passed,
                Err(NotPassed::Failed(why)) => TestOutcome::Failed(why),
                Err(NotPassed::Skipped(why)) => TestOutcome::Skipped(why),
            };
            tests.push(TestResult { name: test.name, outcome });
        }
        Report { tests }
    }
}

impl fmt::Debug for StoreSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { factory: _, without, only, time_limit } = self;
        f.debug_struct("StoreSuite")
            .field("without", without)
            .field("only", only)
            .field("time_limit", time_limit)
            .finish_non_exhaustive()
    }
}
