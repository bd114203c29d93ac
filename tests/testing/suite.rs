//! The suite itself: its names, its selection and its report.

use tollgate::store::{Answer, FailingStore, Store, Verdict};
use tollgate::{Check, Key, ManualClock, MemoryStore, Policy};
use tollgate_testing::{Feature, Fixture, StoreSuite, TestOutcome, store_suite};

use super::memory_store;

async fn store_that_is_down() -> Fixture {
    Fixture::new(FailingStore::new(), ManualClock::default()).without_outage("it is down").with_count_of_keys(|| 0)
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
    let report = store_suite(store_that_is_down).without(Feature::Holds).run().await;
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

/// A store without holds, whose fixture has nothing but a clock.
#[derive(Debug)]
struct Plain(MemoryStore);

impl Store for Plain {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }
}

fn plain() -> Fixture {
    let clock = ManualClock::default();
    Fixture::new(Plain(MemoryStore::new().with_clock(clock.clone())), clock)
}

#[tokio::test]
async fn a_law_that_the_suite_cannot_try_has_failed_and_the_report_says_what_to_write() {
    let report =
        store_suite(|| async { plain() }).without(Feature::CountChanges).without(Feature::PartialCharges).run().await;
    let failed: Vec<_> = report.failed().collect();
    for (names, what) in [
        (["law_6_peeks_and_denials_keep_no_key", "law_6_keys_whose_counts_are_over_are_dropped"], "count_of_keys"),
        (
            ["a_failure_is_an_error_and_the_store_recovers", "law_9_a_check_that_failed_is_charged_once_at_most"],
            "outage",
        ),
    ] {
        for name in names {
            let Some(TestOutcome::Failed(why)) = report.outcome(name) else { panic!("{name}: {report}") };
            assert!(why.contains(&format!("`with_{what}`")) && why.contains(&format!("`without_{what}(")), "{why}");
        }
    }
    let Some(TestOutcome::Failed(why)) = report.outcome("a_reset_ends_open_holds") else { panic!("{report}") };
    assert!(why.contains("Store::has_holds") && why.contains("without(Feature::Holds)"), "{why}");
    assert_eq!(failed.len(), 4 + 9, "the tests of keys, outages and holds: {report}");
}

#[tokio::test]
async fn what_is_left_out_by_name_is_skipped_and_the_report_has_the_reason() {
    let fixture = || async { plain().without_count_of_keys("the table is private").without_outage("no back end") };
    let report = store_suite(fixture)
        .without(Feature::CountChanges)
        .without(Feature::PartialCharges)
        .without(Feature::Holds)
        .run()
        .await;
    report.assert_passed();
    let skipped: Vec<_> = report.skipped().collect();
    assert_eq!(skipped.len(), 4 + 14 + 9 + 6 + 1, "{report}");
    let law_6 =
        ("law_6_keys_whose_counts_are_over_are_dropped", "Fixture::without_count_of_keys: the table is private");
    assert!(skipped.contains(&law_6), "{report}");
    assert!(skipped.contains(&("a_reset_ends_open_holds", "it needs Feature::Holds")), "{report}");
    assert!(report.to_string().contains(&format!("skipped  {}: {}\n", law_6.0, law_6.1)), "{report}");

    let silent = || async { plain().without_count_of_keys(" ").without_outage("") };
    let report = store_suite(silent)
        .without(Feature::CountChanges)
        .without(Feature::PartialCharges)
        .without(Feature::Holds)
        .run()
        .await;
    assert_eq!(report.failed().count(), 4, "a blank is no reason: {report}");
}
