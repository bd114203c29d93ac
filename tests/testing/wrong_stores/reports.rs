//! Stores that judge rightly and report wrongly.

use tollgate::store::{Outcome, Verdict};
use tollgate::{MemoryStore, clock::SystemClock};
use tollgate_testing::Fixture;

use super::{Wrong, fixture_refused_by, ready, refused_by};

/// The verdict with changed outcomes.
fn report(mut verdict: Verdict, change: impl FnMut(&mut Outcome)) -> Verdict {
    verdict.outcomes.iter_mut().for_each(change);
    verdict
}

#[tokio::test]
async fn a_store_that_rounds_retry_after_down() {
    refused_by("law_5_the_same_cost_passes_at_retry_after_and_not_a_microsecond_earlier", |store, check| {
        ready(report(store.judge(check), |outcome| {
            outcome.retry_after_us = outcome.retry_after_us.map(|wait| wait - wait % 1_000);
        }))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_rounds_retry_after_up() {
    refused_by("law_5_the_same_cost_passes_at_retry_after_and_not_a_microsecond_earlier", |store, check| {
        ready(report(store.judge(check), |outcome| {
            outcome.retry_after_us = outcome.retry_after_us.map(|wait| wait.next_multiple_of(1_000));
        }))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_reports_one_unit_too_many_as_available() {
    refused_by("law_4_available_passes_and_one_more_does_not", |store, check| {
        let capacity = check.charges()[0].policy.capacity();
        ready(report(store.judge(check), |outcome| outcome.available = capacity.min(outcome.available + 1)))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_reports_the_next_unit_a_microsecond_early() {
    let why = refused_by("law_12_random_traces_agree_with_the_oracle", |store, check| {
        ready(report(store.judge(check), |outcome| outcome.next_us = outcome.next_us.saturating_sub(1)))
    });
    assert!(why.await.starts_with("seed "), "the seed repeats the failure");
}

#[tokio::test]
async fn a_store_that_says_when_a_cost_above_the_limit_would_pass() {
    refused_by("a_cost_above_the_limit_never_fits_and_has_no_retry_after", |store, check| {
        ready(report(store.judge(check), |outcome| {
            outcome.retry_after_us = (!outcome.fits).then(|| outcome.retry_after_us.unwrap_or(60_000_000));
        }))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_reports_on_the_first_charge_only() {
    let why = refused_by("law_3_every_charge_of_a_check_is_charged", |store, check| {
        let mut verdict = store.judge(check);
        verdict.outcomes = verdict.outcomes.iter().copied().take(1).collect();
        ready(verdict)
    });
    assert!(why.await.contains("1 outcomes for 4 charges"));
}

#[tokio::test]
async fn a_store_with_a_clock_of_its_own() {
    fixture_refused_by("the_verdict_has_the_time_of_the_clock", |clock| {
        let store = Wrong::new(clock.clone(), |store, check| ready(store.judge(check)));
        Fixture::new(Wrong { memory: MemoryStore::new().with_clock(SystemClock), ..store }, clock)
    })
    .await;
}
