//! Stores that ignore a setting of the policy.

use std::time::Duration;

use tollgate::{Algorithm, Policy, store::Charge};

use super::{change, plain, ready, refused_by};

/// The charge under another policy.
fn under(charge: &Charge, policy: Policy) -> (tollgate::Key, Policy, u64) {
    (charge.key.clone(), policy, charge.cost)
}

#[tokio::test]
async fn a_store_that_ignores_bans() {
    let name = "the_last_denial_bans_for_the_whole_duration_even_if_units_are_available";
    refused_by(name, |store, check| ready(store.judge(&change(check, |charge| under(charge, plain(&charge.policy))))))
        .await;
}

#[tokio::test]
async fn a_store_that_ignores_counted_rejections() {
    refused_by("rejected_requests_count_if_the_policy_says_so", |store, check| {
        ready(store.judge(&change(check, |charge| under(charge, charge.policy.clone().with_denials_counted(false)))))
    })
    .await;
}

#[tokio::test]
async fn a_store_with_a_fixed_window_instead_of_a_sliding_one() {
    let name = "law_1_the_log_never_admits_more_than_the_limit_in_any_window";
    let why = refused_by(name, |store, check| {
        ready(store.judge(&change(check, |charge| {
            under(charge, charge.policy.clone().with_algorithm(Algorithm::FixedWindow))
        })))
    });
    assert!(why.await.contains("units of 20 in one window"));
}

#[tokio::test]
async fn a_store_that_ignores_the_resolution() {
    refused_by("a_resolution_rounds_the_time_of_a_charge_up", |store, check| {
        ready(store.judge(&change(check, |charge| {
            let exact = charge.policy.clone().with_resolution(Duration::from_micros(1));
            under(charge, exact.validated().unwrap_or_else(|_| charge.policy.clone()))
        })))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_takes_each_month_for_31_days() {
    refused_by("a_calendar_window_ends_at_its_boundary_and_not_earlier", |store, check| {
        ready(store.judge(&change(check, |charge| {
            let days = Policy::new(charge.policy.name(), charge.policy.limit(), Duration::from_secs(31 * 86_400));
            under(charge, days.unwrap().with_algorithm(Algorithm::FixedWindow))
        })))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_ignores_the_burst() {
    refused_by("an_idle_token_bucket_admits_exactly_its_burst", |store, check| {
        ready(store.judge(&change(check, |charge| match charge.policy.burst() {
            Some(_) => under(charge, plain(&charge.policy)),
            None => under(charge, charge.policy.clone()),
        })))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_keeps_the_first_limit_of_a_policy() {
    refused_by("a_new_limit_applies_at_once_to_live_counts", |store, check| {
        ready(store.judge(&change(check, |charge| {
            let mut first = store.remembered.lock().unwrap();
            let name = format!("{:?}", (charge.policy.name(), charge.policy.window(), charge.policy.algorithm()));
            under(charge, first.entry(name).or_insert_with(|| charge.policy.clone()).clone())
        })))
    })
    .await;
}

#[tokio::test]
async fn a_store_that_enforces_shadow_policies() {
    let name = "a_shadow_policy_that_is_enforced_denies_at_once_what_it_has_counted";
    let why = refused_by(name, |store, check| {
        ready(store.judge(&change(check, |charge| under(charge, charge.policy.clone().with_shadow(false)))))
    });
    assert!(why.await.contains("`allowed` must be true if every charge of an enforced policy fits"));
}

#[tokio::test]
async fn a_store_that_charges_a_shadow_policy_beyond_its_limit() {
    refused_by("law_12_a_shadow_policy_counts_as_if_it_were_enforced", |store, check| {
        ready(store.judge(&change(check, |charge| {
            let policy = charge.policy.clone();
            let counts_all = policy.is_shadow() || policy.denials_counted();
            under(charge, policy.with_denials_counted(counts_all))
        })))
    })
    .await;
}
