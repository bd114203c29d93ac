//! The suite itself: its names, its selection and its report.

use tollgate::{
    ManualClock,
    store::FailingStore,
    testing::{Feature, Fixture, StoreSuite, TestOutcome, store_suite},
};

use super::memory_store;

async fn store_that_is_down() -> Fixture {
    Fixture::new(FailingStore::new(), ManualClock::default())
}

#[tokio::test]
async fn each_test_has_a_name_of_its_own_and_a_result() {
    let mut names: Vec<_> = StoreSuite::names().collect();
    let report = store_suite(store_that_is_down).run().await;
    assert_eq!(report.tests().iter().map(|test| test.name).collect::<Vec<_>>(), names);
    let in_order = names.clone();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), in_order.len(), "two tests have one name");
}

#[tokio::test]
async fn a_failed_report_panics_with_the_name_of_every_failed_test_and_the_cause() {
    let report = store_suite(store_that_is_down).run().await;
    let failed: Vec<_> = report.failed().collect();
    assert!(failed.len() > 30, "{report}");
    let panic = std::panic::catch_unwind(|| report.assert_passed()).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    for name in failed {
        let line = text.lines().find(|line| line.starts_with(&format!("FAILED   {name}: "))).unwrap_or(name);
        assert!(line.ends_with("the store is unavailable: this FailingStore is set to fail"), "{line}");
    }
}

#[tokio::test]
async fn a_test_that_needs_an_absent_feature_is_skipped_and_the_report_names_the_feature() {
    let report = store_suite(memory_store).without(Feature::Bans).run().await;
    report.assert_passed();
    let outcome = report.outcome("a_ban_holds_for_one_key_under_one_policy");
    assert_eq!(outcome, Some(&TestOutcome::Skipped("it needs Feature::Bans".to_owned())));
    assert_eq!(report.outcome("law_3_a_denied_check_changes_no_count"), Some(&TestOutcome::Passed));
}

#[tokio::test]
async fn a_selected_test_runs_alone_and_an_unknown_name_is_not_passed() {
    let report = store_suite(memory_store).only("a_peek_charges_nothing").run().await;
    report.assert_passed();
    assert_eq!(report.to_string(), "passed   a_peek_charges_nothing\n");

    let report = store_suite(memory_store).only("a_peek_charges_noting").run().await;
    assert!(std::panic::catch_unwind(|| report.assert_passed()).is_err(), "a suite without tests shows nothing");
}

#[tokio::test]
async fn a_fixture_that_panics_fails_each_test() {
    async fn panics() -> Fixture {
        panic!("no server was found")
    }
    let report = store_suite(panics).only("a_peek_charges_nothing").run().await;
    let outcome = report.outcome("a_peek_charges_nothing");
    assert_eq!(outcome, Some(&TestOutcome::Failed("panicked: no server was found".to_owned())));
}
