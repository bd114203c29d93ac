//! Stores that lose holds, or settle them wrongly.

use std::time::Duration;

use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Verdict};
use tollgate::{Check, policy::HoldSettings};
use tollgate_testing::Fixture;

use super::{Wrong, fixture_refused_by, plain, ready};

/// Asserts that the suite refuses a store with these faults by the test with this name, and returns why.
async fn refused_by(
    name: &'static str,
    check: fn(&Wrong, &Check) -> Answer<Verdict>,
    change_hold: fn(&Wrong, &Charge, HoldChange) -> SettleAnswer,
) -> String {
    fixture_refused_by(name, move |clock| {
        let store = Wrong { change_hold: Some(change_hold), ..Wrong::new(clock.clone(), check) };
        Fixture::new(store, clock)
    })
    .await
}

#[tokio::test]
async fn a_store_that_does_not_see_open_holds() {
    let name = "an_open_hold_counts_in_full_until_it_is_settled";
    let why = refused_by(
        name,
        |store, check| match check.charges() {
            [charge] if charge.hold.is_none() => {
                ready(store.judge(&Check::new(charge.key.clone(), &plain(&charge.policy), charge.cost)))
            }
            _ => ready(store.judge(check)),
        },
        Wrong::change,
    );
    assert!(why.await.contains("available beside a hold of 8: Some(10), expected Some(2)"));
}

#[tokio::test]
async fn a_store_that_releases_what_is_settled() {
    let name = "an_open_hold_counts_in_full_until_it_is_settled";
    refused_by(
        name,
        |store, check| ready(store.judge(check)),
        |store, hold, _| store.change(hold, HoldChange::Settle(0)),
    )
    .await;
}

#[tokio::test]
async fn a_store_that_charges_at_most_what_was_held() {
    let name = "a_settlement_above_the_hold_is_charged_in_full";
    refused_by(
        name,
        |store, check| ready(store.judge(check)),
        |store, hold, change| match change {
            HoldChange::Settle(actual) => store.change(hold, HoldChange::Settle(actual.min(2))),
            _ => store.change(hold, change),
        },
    )
    .await;
}

#[tokio::test]
async fn a_store_that_settles_twice() {
    let name = "a_hold_is_settled_once_however_often_it_is_sent";
    refused_by(
        name,
        |store, check| ready(store.judge(check)),
        |store, hold, change| {
            if let (SettleAnswer::Expired, HoldChange::Settle(actual)) = (store.change(hold, change), change) {
                store.judge(&Check::new(hold.key.clone(), &hold.policy, actual));
            }
            SettleAnswer::Settled
        },
    )
    .await;
}

#[tokio::test]
async fn a_store_that_keeps_holds_beyond_their_time_to_live() {
    let name = "a_hold_ends_at_its_time_to_live_charged_or_released";
    refused_by(
        name,
        |store, check| {
            let mut long = check.clone();
            if let [charge] = check.charges()
                && charge.hold.is_some()
            {
                let holds = HoldSettings::new().with_ttl(Duration::from_secs(3_600));
                let policy = charge.policy.clone().with_holds(holds);
                long = Check::hold(charge.key.clone(), &policy, charge.cost);
            }
            ready(store.judge(&long))
        },
        Wrong::change,
    )
    .await;
}

#[tokio::test]
async fn a_store_that_does_not_renew() {
    let name = "a_renewed_hold_lives_for_another_time_to_live";
    refused_by(
        name,
        |store, check| ready(store.judge(check)),
        |store, hold, change| match change {
            HoldChange::Renew => SettleAnswer::Settled,
            _ => store.change(hold, change),
        },
    )
    .await;
}
