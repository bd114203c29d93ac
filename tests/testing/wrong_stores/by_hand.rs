//! Stores that ban, charge or give back wrongly.

use std::time::Duration;

use tollgate::Check;
use tollgate::store::{Answer, CountChange, Store, Verdict};
use tollgate_testing::Fixture;

use super::{ChangeCount, Wrong, fixture_refused_by, ready};

/// Asserts that the suite refuses a store with this fault by the test with this name, and returns why.
async fn refused_by(name: &'static str, change_count: ChangeCount) -> String {
    fixture_refused_by(name, move |clock| {
        let check = |store: &Wrong, check: &Check| ready(store.judge(check));
        let store = Wrong { change_count: Some(change_count), ..Wrong::new(clock.clone(), check) };
        Fixture::new(store, clock)
    })
    .await
}

/// The same for a store that has changes by hand and holds, and judges checks with this fault.
async fn judge_refused_by(name: &'static str, check: fn(&Wrong, &Check) -> Answer<Verdict>) -> String {
    fixture_refused_by(name, move |clock| {
        let wrong = Wrong::new(clock.clone(), check);
        let store = Wrong { change_count: Some(Wrong::by_hand), change_hold: Some(Wrong::change), ..wrong };
        Fixture::new(store, clock)
    })
    .await
}

fn meets_ban(verdict: &Verdict) -> bool {
    verdict.outcomes.iter().any(|outcome| outcome.ban_us > 0)
}

#[tokio::test]
async fn a_store_without_changes_by_hand_that_the_suite_is_not_told_of() {
    let name = "recorded_units_are_charged_whether_or_not_they_fit";
    let check = |store: &Wrong, check: &Check| ready(store.judge(check));
    let why = fixture_refused_by(name, move |clock| Fixture::new(Wrong::new(clock.clone(), check), clock)).await;
    assert!(why.contains("cannot ban a key or change its units by hand"), "{why}");
}

#[tokio::test]
async fn a_store_that_resets_the_count_of_a_banned_key() {
    let name = "a_ban_that_is_ended_by_hand_leaves_the_count_as_it_was";
    let why = refused_by(name, |store, key, policy, change| {
        if let CountChange::Ban(_) = change {
            let _ = store.memory.reset(key, policy);
        }
        store.by_hand(key, policy, change)
    });
    assert!(why.await.contains("the ban has removed what was charged"));
}

#[tokio::test]
async fn a_store_that_bans_by_charging_the_whole_limit() {
    let name = "a_ban_by_hand_refuses_until_its_end_and_changes_no_count";
    refused_by(name, |store, key, policy, change| match change {
        CountChange::Ban(_) => store.by_hand(key, policy, CountChange::Record(policy.limit())),
        _ => store.by_hand(key, policy, change),
    })
    .await;
}

#[tokio::test]
async fn a_store_that_adds_a_later_ban_to_an_earlier_one() {
    let name = "a_ban_that_is_ended_by_hand_leaves_the_count_as_it_was";
    let why = refused_by(name, |store, key, policy, change| {
        let ban = match store.judge(&Check::new(key.clone(), policy, 0)).outcomes[0].ban_us {
            0 => change,
            left_us => match change {
                CountChange::Ban(duration) => CountChange::Ban(duration + Duration::from_micros(left_us)),
                _ => change,
            },
        };
        store.by_hand(key, policy, ban)
    });
    assert!(why.await.contains("the second ban"));
}

#[tokio::test]
async fn a_store_that_records_only_what_fits() {
    let name = "recorded_units_are_charged_whether_or_not_they_fit";
    refused_by(name, |store, key, policy, change| match change {
        CountChange::Record(units) => {
            store.judge(&Check::new(key.clone(), policy, units));
            units
        }
        _ => store.by_hand(key, policy, change),
    })
    .await;
}

#[tokio::test]
async fn a_store_that_credits_more_than_was_charged() {
    let name = "credited_units_come_back_up_to_what_was_charged";
    refused_by(name, |store, key, policy, change| match change {
        CountChange::Credit(units) => {
            store.by_hand(key, policy, change);
            units
        }
        _ => store.by_hand(key, policy, change),
    })
    .await;
}

#[tokio::test]
async fn a_store_that_ends_a_ban_with_a_credit() {
    let name = "credited_units_come_back_up_to_what_was_charged";
    let why = refused_by(name, |store, key, policy, change| {
        if let CountChange::Credit(_) = change {
            store.by_hand(key, policy, CountChange::Unban);
        }
        store.by_hand(key, policy, change)
    });
    assert!(why.await.contains("a credit ends the ban"));
}

#[tokio::test]
async fn a_store_that_counts_no_denial_beside_any_ban() {
    let name = "law_2_beside_a_banned_shadow_policy_an_enforced_policy_counts_what_it_counts_alone";
    let why = judge_refused_by(name, |store, check| match store.memory.peek(check) {
        Answer::Ready(Ok(verdict)) if meets_ban(&verdict) && !verdict.allowed => ready(verdict),
        _ => ready(store.judge(check)),
    });
    assert!(why.await.contains("beside a banned shadow policy"));
}

#[tokio::test]
async fn a_store_that_holds_nothing_beside_any_ban() {
    let name = "law_15_beside_a_ban_that_denies_nothing_lost_slots_are_free_at_their_time_to_live";
    let why = judge_refused_by(name, |store, check| match store.memory.peek(check) {
        Answer::Ready(Ok(verdict)) if meets_ban(&verdict) => ready(verdict),
        _ => ready(store.judge(check)),
    });
    assert!(why.await.contains("a fourth slot of 3 beside new ones"));
}
