//! Changes by hand: bans, and units that are charged or given back.

use std::time::Duration;

use tollgate::store::CountChange::{Ban, Credit, Record, Unban};
use tollgate::store::{HoldChange, SettleAnswer};
use tollgate::{Algorithm, Check, Policy, clock::Clock, policy::HoldSettings};

use crate::decision::{Decision, Standing};
use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::{feature::Feature, random::Random, tested_store::TestedStore};

const BAN: Duration = Duration::from_secs(10);
const MICROSECOND: Duration = Duration::from_micros(1);

/// The policies of the test: one of `limit` units a minute for each algorithm that the store has.
fn policies(store: &TestedStore, limit: u64) -> Result<Vec<Policy>, NotPassed> {
    store.requires(Feature::CountChanges)?;
    let policy = |algorithm: Algorithm| Ok(Policy::per_minute("p", limit)?.with_algorithm(algorithm));
    store.algorithms()?.into_iter().map(policy).collect()
}

/// Moves the clock to the start of a window, before which nothing has been charged for long.
fn start_of_window(store: &TestedStore) {
    let past_us = store.clock.now_us() % 240_000_000;
    store.clock.advance(Duration::from_micros(480_000_000 - past_us));
}

pub(super) async fn a_ban_by_hand_refuses_until_its_end_and_changes_no_count(store: TestedStore) -> Tested {
    for policy in policies(&store, 4)? {
        let key = format!("{:?}", policy.algorithm());
        // The start of a window.
        start_of_window(&store);
        let _ = store.check(&key, &policy, 2).await?;
        store.change_count(&key, &policy, Ban(BAN)).await?;
        let refused = store.check(&key, &policy, 1).await?;
        let standing = &refused.policies()[0];
        ensure!(!refused.is_allowed() && standing.violated, "{key}: a banned key passes");
        ensure_eq!((standing.available, standing.ban), (0, Some(BAN)), "{key}: available, ban");
        ensure_eq!(refused.retry_after(), Some(BAN), "{key}: retry_after of a cost that fits after the ban");
        // The count needs longer than the ban, and a cost above the limit never passes.
        let longer = store.check(&key, &policy, 4).await?.retry_after();
        ensure!(longer > Some(BAN), "{key}: retry_after of the whole limit: {longer:?}");
        ensure_eq!(store.check(&key, &policy, 5).await?.retry_after(), None, "{key}: retry_after above the limit");
        let (zero, peek) = (store.check(&key, &policy, 0).await?, store.peek(&key, &policy).await?);
        ensure!(zero.is_allowed() && !peek.is_allowed(), "{key}: a cost of 0 passes, a peek does not: {zero:?}");
        ensure_eq!((peek.policies()[0].ban, peek.retry_after()), (Some(BAN), Some(BAN)), "{key}: a peek");
        ensure!(store.check("other", &policy, 1).await?.is_allowed(), "{key}: another key is banned");

        store.clock.advance(BAN - MICROSECOND);
        let last = store.check(&key, &policy, 1).await?;
        ensure_eq!(last.policies()[0].ban, Some(MICROSECOND), "{key}: the ban 1 µs before its end");
        store.clock.advance(MICROSECOND);
        let after = store.check(&key, &policy, 1).await?;
        ensure!(after.is_allowed() && after.policies()[0].ban.is_none(), "{key}: at the end of the ban: {after:?}");
        // What was charged before the ban still counts. A bucket has refilled less than a unit.
        ensure_eq!(after.available(), Some(1), "{key}: available after the ban");
        store.reset("other", &policy).await?;
    }
    Ok(())
}

pub(super) async fn a_ban_that_is_ended_by_hand_leaves_the_count_as_it_was(store: TestedStore) -> Tested {
    for policy in policies(&store, 4)? {
        let key = format!("{:?}", policy.algorithm());
        start_of_window(&store);
        ensure_eq!(store.change_count(&key, &policy, Unban).await?, 0, "{key}: a key that is not banned");
        let _ = store.check(&key, &policy, 3).await?;
        store.change_count(&key, &policy, Ban(BAN)).await?;
        // A later ban replaces an earlier one, also if it is shorter.
        for ban in [3 * BAN, 2 * BAN] {
            store.change_count(&key, &policy, Ban(ban)).await?;
            ensure_eq!(store.peek(&key, &policy).await?.policies()[0].ban, Some(ban), "{key}: the second ban");
        }
        ensure_eq!(store.change_count(&key, &policy, Unban).await?, 1, "{key}: a banned key");
        ensure!(!store.check(&key, &policy, 2).await?.is_allowed(), "{key}: the ban has removed what was charged");
        ensure!(store.check(&key, &policy, 1).await?.is_allowed(), "{key}: the ban has charged units");
        ensure_eq!(store.change_count(&key, &policy, Unban).await?, 0, "{key}: a ban that has ended");
        // A ban that outlasts what was charged.
        store.change_count(&key, &policy, Ban(20 * BAN)).await?;
        store.clock.advance(19 * BAN);
        ensure_eq!(store.peek(&key, &policy).await?.policies()[0].ban, Some(BAN), "{key}: the long ban");
        store.change_count(&key, &policy, Unban).await?;
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(4), "{key}: available long after the charge");
        store.change_count(&key, &policy, Ban(BAN)).await?;
        ensure!(store.reset(&key, &policy).await?, "{key}: a reset finds no ban");
        ensure!(store.check(&key, &policy, 4).await?.is_allowed(), "{key}: a reset leaves the ban");
    }
    Ok(())
}

pub(super) async fn law_3_a_check_with_a_banned_charge_charges_nothing(store: TestedStore) -> Tested {
    for policy in policies(&store, 4)? {
        let key = format!("{:?}", policy.algorithm());
        let neighbour = Policy::per_minute("neighbour", 4)?.with_algorithm(policy.algorithm());
        store.change_count(&key, &policy, Ban(BAN)).await?;
        for check in [
            Check::new(&*key, &policy, 1).and(&*key, &neighbour, 3),
            Check::new(&*key, &neighbour, 3).and(&*key, &policy, 1),
        ] {
            let refused = store.check_all(check).await?;
            let violated: Vec<&str> = refused.violated().map(|standing| standing.policy.name()).collect();
            ensure_eq!((refused.is_allowed(), violated), (false, vec!["p"]), "{key}: allowed, violated");
            let left = refused.policies().iter().find(|standing| standing.policy == neighbour);
            ensure_eq!(left.map(|standing| standing.available), Some(4), "{key}: available beside the ban");
        }
        ensure!(store.check(&key, &neighbour, 4).await?.is_allowed(), "{key}: the neighbour was charged");
        store.change_count(&key, &policy, Unban).await?;
        ensure!(store.check(&key, &policy, 4).await?.is_allowed(), "{key}: the banned count was charged");
        store.reset(&key, &neighbour).await?;
    }
    Ok(())
}

pub(super) async fn a_shadow_policy_reports_a_ban_and_refuses_nothing(store: TestedStore) -> Tested {
    store.requires(Feature::Shadow)?;
    for policy in policies(&store, 4)? {
        let key = format!("{:?}", policy.algorithm());
        let shadow = policy.clone().with_shadow(true);
        let neighbour = Policy::per_minute("neighbour", 4)?.with_algorithm(policy.algorithm());
        store.change_count(&key, &shadow, Ban(BAN)).await?;
        let alone = store.check(&key, &shadow, 1).await?;
        ensure!(alone.is_allowed() && alone.would_deny(), "{key}: a shadow policy alone: {alone:?}");
        let both = store.check_all(Check::new(&*key, &shadow, 1).and(&*key, &neighbour, 3)).await?;
        ensure!(both.is_allowed() && both.policies()[0].ban.is_some(), "{key}: beside another policy: {both:?}");
        ensure_eq!(both.policies()[1].available, 1, "{key}: available after the charge under the other policy");
        store.change_count(&key, &shadow, Unban).await?;
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(4), "{key}: the banned count was charged");
        store.reset(&key, &neighbour).await?;
    }
    Ok(())
}

/// Under a policy that bans, and under one that counts rejections: the same checks alone, and beside the banned charge.
pub(super) async fn law_2_beside_a_banned_shadow_policy_an_enforced_policy_counts_what_it_counts_alone(
    store: TestedStore,
) -> Tested {
    let policies = policies(&store, 6)?;
    store.requires(Feature::Shadow)?;
    store.requires(Feature::Bans)?;
    store.requires(Feature::CountRejected)?;
    for policy in policies {
        let algorithm = policy.algorithm();
        let shadow = policy.with_shadow(true).with_denials_counted(true).ban_after(2, 60 * BAN);
        let enforced = |name| Policy::per_minute(name, 6).map(|policy| policy.with_algorithm(algorithm));
        let (banning, counting) =
            (enforced("banning")?.ban_after(3, BAN), enforced("counting")?.with_denials_counted(true));
        for (enforced, is_first) in [(&banning, true), (&banning, false), (&counting, true), (&counting, false)] {
            let key = |name: &str| format!("{name} {algorithm:?} {} {is_first}", enforced.name());
            store.change_count(&key("beside"), &shadow, Ban(BAN)).await?;
            for (step, cost) in [4, 4, 4, 4, 1].into_iter().enumerate() {
                let check = match is_first {
                    true => Check::new(key("beside"), enforced, cost).and(key("beside"), &shadow, cost),
                    false => Check::new(key("beside"), &shadow, cost).and(key("beside"), enforced, cost),
                };
                let (alone, beside) = (store.check(key("alone"), enforced, cost).await?, store.check_all(check).await?);
                let counted = |decision: &Decision| {
                    let standings = decision.policies().iter().filter(|standing| !standing.policy.is_shadow());
                    let standing = |standing: &Standing| (standing.available, standing.retry_after, standing.ban);
                    (decision.is_allowed(), standings.map(standing).collect::<Vec<_>>())
                };
                ensure_eq!(counted(&beside), counted(&alone), "{} step {step}: beside a banned shadow policy", key(""));
            }
            store.clock.advance(BAN);
            let peek = store.peek(key("beside"), &shadow).await?;
            let left = (peek.policies()[0].available, peek.policies()[0].ban);
            ensure_eq!(left, (6, None), "{}: the banned charge itself was counted", key(""));
        }
    }
    Ok(())
}

/// The ban of a shadow policy, and a ban of a charge that costs nothing.
pub(super) async fn law_15_beside_a_ban_that_denies_nothing_lost_slots_are_free_at_their_time_to_live(
    store: TestedStore,
) -> Tested {
    let policies = policies(&store, 4)?;
    store.requires(Feature::Shadow)?;
    store.requires_holds()?;
    let slots = Policy::concurrent("slots", 3)?.with_holds(HoldSettings::new().with_ttl(BAN / 2));
    for policy in policies {
        let key = format!("{:?}", policy.algorithm());
        let shadow = policy.clone().with_shadow(true);
        for (banned, cost) in [(&shadow, 1), (&policy, 0)] {
            let check = || Check::new(&*key, banned, cost).and_hold(&*key, &slots, 1);
            for _ in 0..3 {
                let _ = store.hold(&*key, &slots, 1).await?;
            }
            store.change_count(&key, banned, Ban(BAN)).await?;
            ensure!(!store.check_all(check()).await?.is_allowed(), "{key}: a fourth slot of 3 beside lost ones");
            store.clock.advance(BAN / 2);
            for _ in 0..3 {
                let held = store.check_all(check()).await?;
                ensure!(held.is_allowed() && held.policies()[0].ban.is_some(), "{key}: a lost slot is held: {held:?}");
            }
            ensure!(!store.check_all(check()).await?.is_allowed(), "{key}: a fourth slot of 3 beside new ones");
            for used in [banned, &slots] {
                store.reset(&*key, used).await?;
            }
        }
    }
    Ok(())
}

pub(super) async fn an_unban_ends_a_ban_by_denials(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    for policy in policies(&store, 1)? {
        let (key, policy) = (format!("{:?}", policy.algorithm()), policy.ban_after(2, Duration::from_secs(600)));
        for _ in 0..2 {
            let _ = store.check(&key, &policy, 1).await?;
        }
        ensure_eq!(store.change_count(&key, &policy, Unban).await?, 0, "{key}: after one denial of two");
        for _ in 0..2 {
            let _ = store.check(&key, &policy, 1).await?;
        }
        store.clock.advance(Duration::from_secs(120));
        ensure!(!store.check(&key, &policy, 1).await?.is_allowed(), "{key}: two denials do not ban");
        ensure_eq!(store.change_count(&key, &policy, Unban).await?, 1, "{key}: a banned key");
        ensure!(store.check(&key, &policy, 1).await?.is_allowed(), "{key}: banned after the end of the ban");
        // Denials during a ban by hand do not count.
        store.change_count(&key, &policy, Ban(BAN)).await?;
        for _ in 0..5 {
            let _ = store.check(&key, &policy, 1).await?;
        }
        store.clock.advance(BAN);
        ensure_eq!(store.peek(&key, &policy).await?.policies()[0].ban, None, "{key}: ban after denials by the ban");
    }
    Ok(())
}

pub(super) async fn recorded_units_are_charged_whether_or_not_they_fit(store: TestedStore) -> Tested {
    for policy in policies(&store, 6)? {
        let key = format!("{:?}", policy.algorithm());
        start_of_window(&store);
        ensure_eq!(store.change_count(&key, &policy, Record(2)).await?, 2, "{key}: units that fit");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(4), "{key}: available after 2 units");
        ensure_eq!(store.change_count(&key, &policy, Record(7)).await?, 7, "{key}: units that do not fit");
        let spent = store.check(&key, &policy, 1).await?;
        ensure!(!spent.is_allowed() && spent.available() == Some(0), "{key}: after 9 units: {spent:?}");
        // The ban keeps neither the units out nor itself in the way.
        store.change_count(&key, &policy, Ban(BAN)).await?;
        store.change_count(&key, &policy, Record(6)).await?;
        ensure_eq!(store.peek(&key, &policy).await?.policies()[0].ban, Some(BAN), "{key}: the ban after a charge");
        store.change_count(&key, &policy, Unban).await?;
        // 15 units in a bucket of 6 that refills 6 a minute.
        let wait = store.check(&key, &policy, 1).await?.retry_after();
        if policy.algorithm() == Algorithm::TokenBucket {
            ensure_eq!(wait, Some(Duration::from_secs(100)), "{key}: retry_after of a bucket in debt");
        } else {
            ensure!(wait >= Some(Duration::from_secs(60)), "{key}: retry_after {wait:?}");
        }
    }
    Ok(())
}

pub(super) async fn credited_units_come_back_up_to_what_was_charged(store: TestedStore) -> Tested {
    for policy in policies(&store, 6)? {
        let key = format!("{:?}", policy.algorithm());
        start_of_window(&store);
        ensure_eq!(store.change_count(&key, &policy, Credit(3)).await?, 0, "{key}: nothing was charged");
        for _ in 0..3 {
            let _ = store.check(&key, &policy, 2).await?;
            store.clock.advance(MICROSECOND);
        }
        ensure!(!store.check(&key, &policy, 1).await?.is_allowed(), "{key}: seven of six were admitted");
        ensure_eq!(store.change_count(&key, &policy, Credit(3)).await?, 3, "{key}: credited");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(3), "{key}: available after the credit");
        ensure!(store.check(&key, &policy, 3).await?.is_allowed(), "{key}: the credited units do not fit");
        store.change_count(&key, &policy, Ban(BAN)).await?;
        ensure_eq!(store.change_count(&key, &policy, Credit(1)).await?, 1, "{key}: credited during a ban");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(0), "{key}: a credit ends the ban");
        store.change_count(&key, &policy, Unban).await?;
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(1), "{key}: available after the ban");
        ensure_eq!(store.change_count(&key, &policy, Credit(100)).await?, 5, "{key}: no more than was charged");
        let peek = store.peek(&key, &policy).await?;
        ensure_eq!((peek.available(), peek.policies()[0].reset), (Some(6), Duration::ZERO), "{key}: all is back");
        ensure!(!store.check(&key, &policy, 7).await?.is_allowed(), "{key}: more than the capacity fits");
    }
    Ok(())
}

pub(super) async fn open_holds_stay_during_a_ban_and_are_settled(store: TestedStore) -> Tested {
    store.requires(Feature::CountChanges)?;
    store.requires_holds()?;
    for policy in policies(&store, 10)? {
        let (key, policy) = (format!("{:?}", policy.algorithm()), policy.with_holds(HoldSettings::new()));
        start_of_window(&store);
        let (settled, renewed) = (store.hold(&*key, &policy, 4).await?, store.hold(&*key, &policy, 2).await?);
        store.change_count(&key, &policy, Ban(BAN)).await?;
        let refused = store.check_all(Check::hold(&*key, &policy, 1)).await?;
        ensure!(!refused.is_allowed() && refused.retry_after() >= Some(BAN), "{key}: a new hold: {refused:?}");
        ensure_eq!(store.change_hold(&settled, HoldChange::Settle(5)).await?, SettleAnswer::Settled, "{key}: settled");
        ensure_eq!(store.change_hold(&settled, HoldChange::Settle(5)).await?, SettleAnswer::Expired, "{key}: twice");
        ensure_eq!(store.change_hold(&renewed, HoldChange::Renew).await?, SettleAnswer::Settled, "{key}: renewed");
        ensure_eq!(store.peek(&*key, &policy).await?.policies()[0].ban, Some(BAN), "{key}: the ban stays");
        store.change_count(&key, &policy, Unban).await?;
        ensure_eq!(store.peek(&*key, &policy).await?.available(), Some(3), "{key}: 5 were charged and 2 are held");
    }
    Ok(())
}

pub(super) async fn credited_units_of_a_log_are_the_youngest(store: TestedStore) -> Tested {
    store.requires(Feature::CountChanges)?;
    let logs = store.algorithms_of(&[Feature::SlidingWindowLog])?;
    for policy in policies(&store, 10)?.into_iter().filter(|policy| logs.contains(&policy.algorithm())) {
        let (key, second) = ("youngest", Duration::from_secs(1));
        for units in [4, 3, 2] {
            let _ = store.check(key, &policy, units).await?;
            store.clock.advance(second);
        }
        // The two of a second ago, and one of the three before.
        ensure_eq!(store.change_count(key, &policy, Credit(3)).await?, 3, "credited");
        let peek = store.peek(key, &policy).await?;
        let reset = Duration::from_secs(60) - 2 * second;
        ensure_eq!((peek.available(), peek.policies()[0].reset), (Some(4), reset), "available, reset after the credit");
        store.clock.advance(Duration::from_secs(57));
        ensure_eq!(store.peek(key, &policy).await?.available(), Some(8), "when the first charge has left");
        store.clock.advance(second);
        ensure_eq!(store.peek(key, &policy).await?.available(), Some(10), "when the second charge has left");
    }
    Ok(())
}

/// A law 1 of credits: what was given back in a window is the most that exceeds the limit in it.
pub(super) async fn law_1_a_window_admits_no_more_than_the_limit_and_what_was_given_back_in_it(
    store: TestedStore,
) -> Tested {
    store.requires(Feature::CountChanges)?;
    let logs = store.algorithms_of(&[Feature::SlidingWindowLog])?;
    for policy in policies(&store, 20)?.into_iter().filter(|policy| logs.contains(&policy.algorithm())) {
        let window_us = 60_000_000;
        let mut random = Random(7);
        // The time, the admitted and the credited units of each step.
        let mut steps: Vec<(u64, u64, u64)> = Vec::new();
        for _ in 0..400 {
            store.clock.advance(Duration::from_micros(random.below(9_000_000)));
            let (now_us, units) = (store.clock.now_us(), random.cost(12));
            let (mut admitted, mut credited) = (0, 0);
            if random.below(3) == 0 {
                credited = store.change_count("law", &policy, Credit(units)).await?;
            } else if store.check("law", &policy, units).await?.is_allowed() {
                admitted = units;
            }
            steps.push((now_us, admitted, credited));
            let recent = steps.iter().filter(|(at_us, ..)| at_us + window_us > now_us);
            let (all, back) = recent.fold((0, 0), |(all, back), step| (all + step.1, back + step.2));
            ensure!(all <= 20 + back, "{all} units were admitted in a window in which {back} were given back");
        }
    }
    Ok(())
}
