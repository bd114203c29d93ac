//! Peeks at costs, and charges of as much as fits.

use std::time::Duration;

use tollgate::store::{CountChange, HoldChange};
use tollgate::{Algorithm, Check, Policy, policy::HoldSettings};

use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::{feature::Feature, tested_store::TestedStore};

const MICROSECOND: Duration = Duration::from_micros(1);

/// A policy of 10 units a minute for each algorithm that the store has.
fn policies(store: &TestedStore) -> Result<Vec<Policy>, NotPassed> {
    store.requires(Feature::PartialCharges)?;
    let policy = |algorithm: Algorithm| Ok(Policy::per_minute("p", 10)?.with_algorithm(algorithm));
    store.algorithms()?.into_iter().map(policy).collect()
}

pub(super) async fn a_peek_at_costs_says_when_they_pass_and_charges_nothing(store: TestedStore) -> Tested {
    for policy in policies(&store)? {
        let key = format!("{:?}", policy.algorithm());
        let _ = store.check(&*key, &policy, 3).await?;
        store.clock.advance(MICROSECOND);
        let _ = store.check(&*key, &policy, 4).await?;
        for _ in 0..3 {
            let fits = store.peek_at(Check::new(&*key, &policy, 3)).await?;
            ensure!(fits.is_allowed() && fits.available() == Some(3), "{key}: a cost that fits: {fits:?}");
        }
        ensure_eq!(store.peek_at(Check::new(&*key, &policy, 11)).await?.retry_after(), None, "{key}: never");
        let denied = store.peek_at(Check::new(&*key, &policy, 5)).await?;
        let Some(wait) = denied.retry_after() else {
            return Err(NotPassed::Failed(format!("{key}: no wait for a cost that does not fit: {denied:?}")));
        };
        store.clock.advance(wait - MICROSECOND);
        let early = store.peek_at(Check::new(&*key, &policy, 5)).await?;
        ensure!(!early.is_allowed(), "{key}: 1 µs before the end of the wait: {early:?}");
        store.clock.advance(MICROSECOND);
        ensure!(store.peek_at(Check::new(&*key, &policy, 5)).await?.is_allowed(), "{key}: at the end of the wait");
        ensure!(store.check(&*key, &policy, 5).await?.is_allowed(), "{key}: the peeks were charged");
    }
    Ok(())
}

pub(super) async fn law_3_a_peek_at_several_costs_charges_none_and_counts_no_denial(store: TestedStore) -> Tested {
    for policy in policies(&store)? {
        let key = format!("{:?}", policy.algorithm());
        let mut other = Policy::per_minute("other", 10)?.with_algorithm(policy.algorithm());
        if store.requires(Feature::CountRejected).is_ok() {
            other = other.with_denials_counted(true);
        }
        if store.requires(Feature::Bans).is_ok() {
            other = other.ban_after(1, Duration::from_secs(600));
        }
        let check = |cost: u64| Check::new(&*key, &policy, cost).and("other", &other, 11 - cost);
        for cost in [1, 10, 11, 1] {
            let peek = store.peek_at(check(cost)).await?;
            let fits: Vec<bool> = peek.policies().iter().map(|standing| !standing.violated).collect();
            ensure_eq!((peek.is_allowed(), &*fits), (cost < 11, &[cost < 11, true][..]), "{key}: costs {cost}");
        }
        let _ = store.check("other", &other, 2).await?;
        for _ in 0..3 {
            let peek = store.peek_at(check(1)).await?;
            ensure!(!peek.is_allowed() && peek.policies()[0].available == 10, "{key}: one of two: {peek:?}");
        }
        ensure!(store.check("other", &other, 8).await?.is_allowed(), "{key}: peeks were charged or counted");
        store.reset("other", &other).await?;
    }
    Ok(())
}

pub(super) async fn as_many_units_are_charged_as_fit(store: TestedStore) -> Tested {
    for policy in policies(&store)? {
        let key = format!("{:?}", policy.algorithm());
        let (four, first) = store.charge_up_to(&*key, &policy, 4).await?;
        ensure_eq!((four, first.is_allowed(), first.available()), (4, true, Some(6)), "{key}: all of 4");
        let (six, second) = store.charge_up_to(&*key, &policy, 1_000).await?;
        ensure_eq!((six, second.is_allowed(), second.available()), (6, true, Some(0)), "{key}: a part of 1000");
        let (none, denied) = store.charge_up_to(&*key, &policy, 1_000).await?;
        let wait = store.check(&*key, &policy, 1).await?.retry_after();
        ensure_eq!((none, denied.is_allowed(), denied.retry_after()), (0, false, wait), "{key}: none");
        store.clock.advance(wait.unwrap_or_default());
        let (some, _) = store.charge_up_to(&*key, &policy, u64::MAX).await?;
        ensure!(some > 0 && !store.check(&*key, &policy, 1).await?.is_allowed(), "{key}: {some} after the wait");
        if store.requires(Feature::CountChanges).is_ok() {
            let fresh = format!("{key} banned");
            store.change_count(&fresh, &policy, CountChange::Ban(Duration::from_secs(5))).await?;
            let (none, denied) = store.charge_up_to(&*fresh, &policy, 3).await?;
            ensure_eq!((none, denied.retry_after()), (0, Some(Duration::from_secs(5))), "{key}: a banned key");
            store.change_count(&fresh, &policy, CountChange::Unban).await?;
            ensure_eq!(store.charge_up_to(&*fresh, &policy, 30).await?.0, 10, "{key}: after the ban");
        }
    }
    Ok(())
}

pub(super) async fn a_charge_of_as_much_as_fits_counts_one_denial_if_nothing_fits(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    for policy in policies(&store)? {
        let ban = Duration::from_secs(3_600);
        let (key, policy) = (format!("{:?}", policy.algorithm()), policy.ban_after(3, ban));
        ensure_eq!(store.charge_up_to(&*key, &policy, 8).await?.0, 8, "{key}: units that fit");
        ensure_eq!(store.charge_up_to(&*key, &policy, 8).await?.0, 2, "{key}: a part is no denial");
        for (denial, units) in [(1, 8), (2, 1_000), (3, u64::MAX)] {
            let (none, denied) = store.charge_up_to(&*key, &policy, units).await?;
            let ends = denied.policies()[0].ban;
            ensure_eq!((none, ends), (0, (denial == 3).then_some(ban)), "{key}: denial {denial}");
        }
        store.clock.advance(Duration::from_secs(600));
        for units in [1, 1_000] {
            let (none, denied) = store.charge_up_to(&*key, &policy, units).await?;
            let left = Duration::from_secs(3_000);
            ensure_eq!((none, denied.retry_after()), (0, Some(left)), "{key}: up to {units} during the ban");
        }
    }
    Ok(())
}

pub(super) async fn open_holds_leave_less_room_for_parts(store: TestedStore) -> Tested {
    store.requires(Feature::PartialCharges)?;
    store.requires_holds()?;
    for policy in policies(&store)? {
        let (key, policy) = (format!("{:?}", policy.algorithm()), policy.with_holds(HoldSettings::new()));
        let hold = store.hold(&*key, &policy, 6).await?;
        let peek = store.peek_at(Check::new(&*key, &policy, 5)).await?;
        ensure!(!peek.is_allowed() && peek.available() == Some(4), "{key}: a peek beside a hold: {peek:?}");
        let (four, decision) = store.charge_up_to(&*key, &policy, 10).await?;
        ensure_eq!((four, decision.available()), (4, Some(0)), "{key}: beside a hold of 6");
        let (none, denied) = store.charge_up_to(&*key, &policy, 10).await?;
        ensure!(none == 0 && denied.retry_after().is_some(), "{key}: nothing is left beside the hold: {denied:?}");
        store.change_hold(&hold, HoldChange::Settle(1)).await?;
        ensure_eq!(store.charge_up_to(&*key, &policy, 10).await?.0, 5, "{key}: after the settlement");
    }
    Ok(())
}
