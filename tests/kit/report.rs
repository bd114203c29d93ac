//! The report of a suite.

use std::fmt;

/// The result of every test of a suite, by name.
///
/// `Display` writes one line for each test.
#[derive(Clone, Debug)]
#[must_use = "a report says nothing before it is read: call `assert_passed`"]
pub struct Report {
    pub(super) tests: Vec<TestResult>,
}

/// The result of one test.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TestResult {
    /// The name: the sentence that the test proves, in snake case. The tests of a law begin with its number:
    /// `law_3_...`.
    pub name: &'static str,
    /// How the test ended.
    pub outcome: TestOutcome,
}

/// How a test ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TestOutcome {
    /// The store keeps what the name says.
    Passed,
    /// The store does not, with what was found and what was expected. Also a store that panicked or did not answer
    /// within the [time limit](super::StoreSuite::with_time_limit).
    Failed(String),
    /// The test did not run, because the suite leaves a [feature](super::Feature) out, or the
    /// [fixture](super::Fixture) leaves a part out, with its reason.
    Skipped(String),
}

impl Report {
    /// Every test that the suite selected, in the order of the suite.
    pub fn tests(&self) -> &[TestResult] {
        &self.tests
    }

    /// The names of the tests that failed.
    pub fn failed(&self) -> impl Iterator<Item = &'static str> {
        self.tests.iter().filter(|test| matches!(test.outcome, TestOutcome::Failed(_))).map(|test| test.name)
    }

    /// The names of the tests that were skipped, each with the feature or the reason: what the report does not show.
    pub fn skipped(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.tests.iter().filter_map(|test| match &test.outcome {
            TestOutcome::Skipped(why) => Some((test.name, &**why)),
            TestOutcome::Passed | TestOutcome::Failed(_) => None,
        })
    }

    /// The outcome of the test with this name; `None` if the suite did not select it.
    pub fn outcome(&self, name: &str) -> Option<&TestOutcome> {
        self.tests.iter().find(|test| test.name == name).map(|test| &test.outcome)
    }

    /// Asserts that no test failed and at least one passed. Prints the skipped tests to stderr, because the store may
    /// break the laws that they test. Test runners show this output with `--nocapture`.
    ///
    /// # Panics
    ///
    /// If a test failed, with the name of every failed test and why it failed. If no test passed, because a suite
    /// without tests shows nothing.
    #[track_caller]
    pub fn assert_passed(&self) {
        let failed = self.failed().count();
        assert!(failed == 0, "{failed} of {} tests of the store failed:\n{self}", self.tests.len());
        assert!(self.passed() > 0, "no test of the store ran:\n{self}");
        let skipped: String = self.skipped().map(|(name, why)| format!("\n{name}: {why}")).collect();
        if !skipped.is_empty() {
            eprintln!("the store passes {} tests, and these were not tried:{skipped}", self.passed());
        }
    }

    /// The number of tests that passed.
    fn passed(&self) -> usize {
        self.tests.iter().filter(|test| test.outcome == TestOutcome::Passed).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for TestResult { name, outcome } in &self.tests {
            match outcome {
                TestOutcome::Passed => writeln!(f, "passed   {name}")?,
                TestOutcome::Failed(why) => writeln!(f, "FAILED   {name}: {why}")?,
                TestOutcome::Skipped(why) => writeln!(f, "skipped  {name}: {why}")?,
            }
        }
        Ok(())
    }
}
