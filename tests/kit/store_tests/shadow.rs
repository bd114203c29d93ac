//! Shadow policies: they count as if they were enforced, and decide nothing.

use std::time::Duration;

use tollgate::{Check, Policy};

use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::{decision::Decision, feature::Feature, random::Random, tested_store::TestedStore};

/// The names of the shadow policies that would deny the check.
fn would_deny(decision: &Decision) -> Vec<&str> {
    decision.policies().iter().filter(|standing| standing.would_deny).map(|standing| standing.policy.name()).collect()
}

/// Three exact logs with random limits, each sometimes a shadow policy, and an oracle that is one list of charges per
/// log.
pub(super) async fn law_1_2_3_and_12_checks_with_shadow_charges_agree_with_lists_of_charges(
    store: TestedStore,
) -> Tested {
    const WINDOW_US: u64 = 100_000;
    store.requires(Feature::Shadow)?;
    store.requires(Feature::SlidingWindowLog)?;
    let mut left_out = 0;
    for seed in 0..30 {
        let mut random = Random(seed);
        let limits: Vec<u64> = (0..3).map(|_| random.cost(12)).collect();
        let mut charged: Vec<Vec<(u64, u64)>> = vec![Vec::new(); 3];
        let mut now_us = 0;
        for step in 0..60 {
            let advance_us = random.below(20_000);
            store.clock.advance(Duration::from_micros(advance_us));
            now_us += advance_us;
            let first = random.below(3) as usize;
            let count = 1 + random.below(3) as usize;
            let charges: Vec<(usize, u64, bool)> =
                (0..count).map(|index| ((first + index) % 3, random.cost(5), random.below(2) == 0)).collect();
            let policy = |log: usize, shadow| -> Result<Policy, NotPassed> {
                let policy = Policy::new(format!("p{log}"), limits[log], Duration::from_micros(WINDOW_US))?;
                Ok(policy.with_shadow(shadow))
            };
            let key = seed.to_string();
            let (log, cost, shadow) = charges[0];
            let mut check = Check::new(&key, &policy(log, shadow)?, cost);
            for &(log, cost, shadow) in &charges[1..] {
                check = check.and(&key, &policy(log, shadow)?, cost);
            }
            let spent = |charged: &[Vec<(u64, u64)>], log: usize| -> u64 {
                let live = charged[log].iter().filter(|(at_us, _)| at_us + WINDOW_US > now_us);
                live.map(|(_, cost)| cost).sum()
            };
            let fits: Vec<bool> =
                charges.iter().map(|&(log, cost, _)| spent(&charged, log) + cost <= limits[log]).collect();
            let allowed = charges.iter().zip(&fits).all(|(&(_, _, shadow), &fits)| fits || shadow);
            for (&(log, cost, _), &fits) in charges.iter().zip(&fits) {
                if allowed && fits {
                    charged[log].push((now_us, cost));
                }
                left_out += u64::from(allowed && !fits);
            }
            let decision = store.check_all(check).await?;
            ensure_eq!(decision.is_allowed(), allowed, "seed {seed}, step {step}: {charges:?} {decision:?}");
            for ((&(log, _, shadow), &fits), standing) in charges.iter().zip(&fits).zip(decision.policies()) {
                let expected = (!fits && !shadow, !fits && shadow, limits[log] - spent(&charged, log));
                let found = (standing.violated, standing.would_deny, standing.available);
                ensure_eq!(found, expected, "seed {seed}, step {step}: {charges:?} {decision:?}");
            }
        }
    }
    ensure!(left_out > 200, "{left_out}");
    Ok(())
}

pub(super) async fn law_2_an_enforced_policy_beside_a_shadow_policy_admits_what_it_admits_alone(
    store: TestedStore,
) -> Tested {
    store.requires(Feature::Shadow)?;
    for algorithm in store.algorithms()? {
        for shadow_first in [false, true] {
            let key = |name: &str| format!("{name} {algorithm:?} {shadow_first}");
            let enforced = Policy::per_second("enforced", 10)?.with_algorithm(algorithm);
            let shadow = Policy::per_minute("shadow", 3)?.with_algorithm(algorithm).with_shadow(true);
            let (mut random, mut denied) = (Random(7), 0);
            for step in 0..60 {
                store.clock.advance(Duration::from_micros(random.below(200_000)));
                let cost = random.cost(6);
                let alone = store.check(&key("alone"), &enforced, cost).await?;
                let check = match shadow_first {
                    false => Check::new(key("beside"), &enforced, cost).and(key("beside"), &shadow, cost),
                    true => Check::new(key("beside"), &shadow, cost).and(key("beside"), &enforced, cost),
                };
                let beside = store.check_all(check).await?;
                let all = |decision: &Decision| {
                    (decision.is_allowed(), decision.available(), decision.retry_after(), decision.violated().count())
                };
                ensure_eq!(all(&beside), all(&alone), "{} step {step}: beside a shadow policy", key(""));
                denied += u64::from(!alone.is_allowed());
            }
            ensure!((5..60).contains(&denied), "{}: {denied} of 60 checks were denied", key(""));
        }
    }
    Ok(())
}

pub(super) async fn law_3_a_denied_check_charges_no_shadow_policy(store: TestedStore) -> Tested {
    store.requires(Feature::Shadow)?;
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let enforced = Policy::per_minute("enforced", 2)?.with_algorithm(algorithm);
        let shadow = Policy::per_minute("shadow", 10)?.with_algorithm(algorithm).with_shadow(true);
        let check = |cost| Check::new(&key, &enforced, cost).and(&key, &shadow, 1);
        ensure!(!store.check_all(check(3)).await?.is_allowed());
        ensure_eq!(store.peek(&key, &shadow.clone().with_shadow(false)).await?.available(), Some(10));
        ensure!(store.check_all(check(2)).await?.is_allowed());
        ensure_eq!(store.peek(&key, &shadow.clone().with_shadow(false)).await?.available(), Some(9));
    }
    Ok(())
}

/// The same traffic under a policy as a shadow policy and enforced: every report is the same, except for the verdict.
pub(super) async fn law_12_a_shadow_policy_counts_as_if_it_were_enforced(store: TestedStore) -> Tested {
    store.requires(Feature::Shadow)?;
    let long = Duration::from_secs(30);
    for algorithm in store.algorithms()? {
        let plain = Policy::per_second("p", 5)?.with_algorithm(algorithm);
        let mut variants = vec![plain.clone()];
        if store.requires(Feature::CountRejected).is_ok() {
            variants.push(plain.with_denials_counted(true));
        }
        if store.requires(Feature::Bans).is_ok() {
            let banning: Vec<Policy> = variants.iter().map(|policy| policy.clone().ban_after(3, long)).collect();
            variants.extend(banning);
        }
        for (variant, enforced) in variants.into_iter().enumerate() {
            let shadow = enforced.clone().with_shadow(true);
            let wide = store.per_minute("wide", 100_000)?;
            let key = |name: &str| format!("{name} {algorithm:?} {variant}");
            let (mut random, mut denied) = (Random(3), 0);
            for step in 0..80 {
                store.clock.advance(Duration::from_micros(random.below(300_000)));
                let cost = random.cost(7);
                let under_enforced = store.check(&key("enforced"), &enforced, cost).await?;
                let alone = store.check(&key("shadow"), &shadow, cost).await?;
                let check = Check::new(key("beside"), &wide, 1).and(key("beside"), &shadow, cost);
                let beside = store.check_all(check).await?;
                for (decision, standing) in [(&alone, &alone.policies()[0]), (&beside, &beside.policies()[1])] {
                    let expected = &under_enforced.policies()[0];
                    ensure!(decision.is_allowed() && !standing.violated, "{} step {step}: denied", key(""));
                    ensure_eq!(
                        (standing.would_deny, standing.available, standing.retry_after, standing.next, standing.ban),
                        (expected.violated, expected.available, expected.retry_after, expected.next, expected.ban),
                        "{} step {step}",
                        key("")
                    );
                }
                ensure_eq!((alone.available(), alone.retry_after()), (None, None));
                denied += u64::from(!under_enforced.is_allowed());
            }
            ensure!((10..80).contains(&denied), "{}: {denied} of 80 checks did not fit", key(""));
        }
    }
    Ok(())
}

pub(super) async fn a_shadow_policy_that_is_enforced_denies_at_once_what_it_has_counted(store: TestedStore) -> Tested {
    store.requires(Feature::Shadow)?;
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let shadow = Policy::per_minute("p", 2)?.with_algorithm(algorithm).with_shadow(true);
        for would in [false, false, true, true] {
            let decision = store.check(&key, &shadow, 1).await?;
            ensure_eq!((decision.is_allowed(), decision.would_deny()), (true, would), "{algorithm:?}");
        }
        let enforced = shadow.clone().with_shadow(false);
        let denied = store.check(&key, &enforced, 1).await?;
        ensure!(!denied.is_allowed() && denied.retry_after().is_some(), "{algorithm:?}");
        ensure!(store.check(&key, &shadow, 1).await?.is_allowed(), "and back");
    }
    Ok(())
}

pub(super) async fn a_cost_above_the_limit_of_a_shadow_policy_refuses_nothing(store: TestedStore) -> Tested {
    store.requires(Feature::Shadow)?;
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let shadow = Policy::per_minute("shadow", 2)?.with_algorithm(algorithm).with_shadow(true);
        let enforced = Policy::per_minute("enforced", 9)?.with_algorithm(algorithm);
        let alone = store.check(&key, &shadow, 3).await?;
        ensure!(alone.is_allowed() && alone.would_deny() && alone.policies()[0].never_fits());
        let check = Check::new(&key, &enforced, 3).and(&key, &shadow, u64::MAX);
        let decision = store.check_all(check).await?;
        ensure_eq!((decision.is_allowed(), would_deny(&decision)), (true, vec!["shadow"]));
        ensure_eq!(decision.available(), Some(6), "of the enforced policy");
        let peek = store.peek(&key, &shadow).await?;
        ensure!(peek.is_allowed() && peek.policies()[0].available == 2, "nothing was charged");
    }
    Ok(())
}

pub(super) async fn a_peek_at_a_spent_shadow_policy_is_allowed_and_says_that_it_would_deny(
    store: TestedStore,
) -> Tested {
    store.requires(Feature::Shadow)?;
    let shadow = store.per_minute("p", 1)?.with_shadow(true);
    let _ = store.check("k", &shadow, 1).await?;
    let peek = store.peek("k", &shadow).await?;
    ensure!(peek.is_allowed() && peek.would_deny());
    ensure_eq!(peek.policies()[0].retry_after, Some(Duration::from_secs(60)));
    Ok(())
}
