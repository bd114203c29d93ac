//! The suite for stores: the memory store passes it, and wrong stores fail the test that is named for their fault.

mod suite;
mod wrong_stores;

use tollgate::{ErrorKind, ManualClock, MemoryStore, store::FailingStore};
use tollgate_testing::{Fixture, TestOutcome, store_suite};

async fn memory_store() -> Fixture {
    let clock = ManualClock::default();
    let store = MemoryStore::new().with_clock(clock.clone());
    Fixture::new(store.clone(), clock)
        .with_count_of_keys(move || store.keys())
        .without_outage("the counts are in this process")
}

/// A memory store that the suite makes fail.
async fn failing_store() -> Fixture {
    let clock = ManualClock::default();
    let memory = MemoryStore::new().with_clock(clock.clone());
    let store = FailingStore::over(memory.clone());
    store.recover();
    Fixture::new(store.clone(), clock)
        .with_outage(move |is_down| match is_down {
            true => store.fail(ErrorKind::Unavailable),
            false => store.recover(),
        })
        .with_count_of_keys(move || memory.keys())
}

#[tokio::test]
async fn the_memory_store_passes_every_test_of_the_suite() {
    let report = store_suite(memory_store).run().await;
    report.assert_passed();
    let why = "Fixture::without_outage: the counts are in this process";
    let skipped: Vec<_> = report.skipped().collect();
    assert_eq!(
        skipped,
        [
            ("a_failure_is_an_error_and_the_store_recovers", why),
            ("law_9_a_check_that_failed_is_charged_once_at_most", why)
        ]
    );
}

#[tokio::test]
async fn a_store_with_outages_passes_the_tests_of_failures() {
    let report = store_suite(failing_store).run().await;
    report.assert_passed();
    assert_eq!(report.skipped().count(), 0, "{report}");
    for name in ["a_failure_is_an_error_and_the_store_recovers", "law_9_a_check_that_failed_is_charged_once_at_most"] {
        assert_eq!(report.outcome(name), Some(&TestOutcome::Passed), "{name}");
    }
}
