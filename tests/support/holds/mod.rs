//! Random traces of holds and plain checks that a store and an oracle decide alike, in every field.

mod bans;
mod oracle;

use std::{collections::HashMap, time::Duration};

use tollgate::store::{Answer, Charge, HoldChange, Store};
use tollgate::{Algorithm, Check, Key, ManualClock, Policy, clock::Clock, policy::HoldSettings};

use self::bans::Ban;
use self::oracle::{Oracles, charged};
use super::{ALGORITHMS, random::Random};

const KEYS: [&str; 3] = ["a", "b", "c"];

/// Runs one trace of `steps` steps, and compares every verdict and every settlement with the oracle's.
pub async fn random_trace(store: &dyn Store, clock: &ManualClock, seed: u64, steps: usize) {
    trace(store, clock, seed, steps, check).await
}

/// The same with checks of which half have alternatives, plain ones and holds.
pub async fn random_trace_with_alternatives(store: &dyn Store, clock: &ManualClock, seed: u64, steps: usize) {
    trace(store, clock, seed, steps, check_with_alternatives).await
}

async fn trace(
    store: &dyn Store,
    clock: &ManualClock,
    seed: u64,
    steps: usize,
    check: fn(&mut Random, &[Policy]) -> Check,
) {
    let mut random = Random(seed);
    let (policies, bans) = policies(&mut random, seed);
    let (mut oracles, mut made) = (Oracles::new(bans), Vec::new());
    for step in 0..steps {
        let longest = random.pick(&[0, 1, 700, 9_000, 60_000, 250_000]);
        clock.advance(Duration::from_micros(random.below(longest + 1)));
        let now_us = clock.now_us();
        if !made.is_empty() && random.one_in(3) {
            let (hold, change) = change(&mut random, &made);
            let settlement = answer(store.change_hold(&hold, change)).await;
            let expected = oracles.change(&hold, change, now_us);
            assert_eq!(settlement, expected, "seed {seed}, step {step}, {change:?} of {hold:?}");
        } else {
            let check = check(&mut random, &policies);
            let verdict = answer(store.check(&check)).await;
            let expected = oracles.decide(&check, now_us);
            assert_eq!(
                (verdict.allowed, verdict.outcomes.to_vec()),
                expected,
                "seed {seed}, step {step}, {check:#?}\nheld: {:?}",
                oracles.held_by(&check)
            );
            let fitted: Vec<bool> = verdict.outcomes.iter().map(|outcome| outcome.fits).collect();
            let held = charged(&check, &fitted).unwrap_or_default().into_iter().map(|number| &check.charges()[number]);
            made.extend(held.filter(|charge| charge.hold.is_some()).map(|charge| (charge.clone(), charge.cost)));
        }
    }
}

/// Policies of all algorithms, most of them with holds, and the bans of some. Policies of one name share their counts.
fn policies(random: &mut Random, seed: u64) -> (Vec<Policy>, HashMap<String, Ban>) {
    let mut policies = Vec::new();
    for algorithm in ALGORITHMS {
        for number in 0..2 {
            let (limit, window) = (random.pick(&[1, 5, 20, 1_000, Policy::MAX_LIMIT]), 1 + random.below(200_000));
            let name = format!("{algorithm:?}-{number}-{seed}");
            let mut policy = Policy::new(name, limit, Duration::from_micros(window)).unwrap().with_algorithm(algorithm);
            if algorithm == Algorithm::SlidingWindowLog && number == 1 && window > 4_000 {
                policy = policy.with_resolution(Duration::from_micros(4_000));
            } else if algorithm == Algorithm::TokenBucket && number == 1 {
                policy = policy.with_burst(limit.div_ceil(2));
            }
            let holds = HoldSettings::new()
                .with_ttl(Duration::from_micros(1 + random.below(300_000)))
                .with_typical_duration(Duration::from_micros(random.pick(&[1, 5_000, 100_000, 10_000_000])))
                .with_unsettled_released(random.pick(&[false, true]));
            policies.push(policy.with_holds(holds).with_shadow(random.one_in(6)));
        }
        policies.push(Policy::per_second(format!("{algorithm:?}-plain-{seed}"), 5).unwrap().with_algorithm(algorithm));
    }
    let mut bans = HashMap::new();
    // Drawn after all else, so that the policies of a seed are otherwise what they were.
    let mut ban_some = |policy: Policy| {
        if !random.one_in(3) {
            return policy;
        }
        let duration = Duration::from_micros(1 + random.below(300_000));
        let longest = random.one_in(2).then(|| duration * random.pick(&[1, 2, 3, 100]));
        let ban = Ban { denials: random.pick(&[1, 2, 5]), duration, longest };
        bans.insert(policy.name().to_owned(), ban);
        ban.set(policy)
    };
    let policies = policies.into_iter().map(&mut ban_some).collect();
    (policies, bans)
}

/// A check of up to three charges and holds, each of another count.
fn check(random: &mut Random, policies: &[Policy]) -> Check {
    let mut check: Option<Check> = None;
    for _ in 0..1 + random.below(3) {
        let policy = &policies[random.index(policies.len())];
        let key = Key::from(random.pick(&KEYS));
        let is_same = |check: &Check| check.charges().iter().any(|other| other.key == key && other.policy == *policy);
        if check.as_ref().is_some_and(is_same) {
            continue;
        }
        let most = random.pick(&[1, policy.capacity().min(4), policy.capacity(), policy.capacity() + 1]);
        let cost = random.cost(most);
        let is_hold = policy.holds().is_some() && random.one_in(2);
        check = Some(match (check, is_hold, random.one_in(8)) {
            (None, true, _) => Check::hold(key, policy, cost),
            (None, false, is_peek) => Check::new(key, policy, if is_peek { 0 } else { cost }),
            (Some(check), true, _) => check.and_hold(key, policy, cost),
            (Some(check), false, is_peek) => check.and(key, policy, if is_peek { 0 } else { cost }),
        });
    }
    check.unwrap()
}

/// A check of up to two charges, of which one has up to three alternatives.
fn check_with_alternatives(random: &mut Random, policies: &[Policy]) -> Check {
    if random.one_in(3) {
        return check(random, policies);
    }
    let key = random.pick(&KEYS);
    let (shadow, held) = (random.one_in(8), random.one_in(2));
    let mut left: Vec<&Policy> = policies.iter().filter(|policy| !held || policy.holds().is_some()).collect();
    let mut take = |random: &mut Random| left.swap_remove(random.index(left.len()));
    let (beside, alternatives) = (take(random), [(); 3].map(|()| take(random).clone().with_shadow(shadow)));
    let alternatives = &alternatives[..1 + random.index(3)];
    let largest = alternatives.iter().map(Policy::capacity).max().unwrap();
    let most = random.pick(&[1, 4, largest.min(20), largest, largest + 1]);
    let cost = if held || !random.one_in(8) { random.cost(most) } else { 0 };
    let is_first = random.one_in(2);
    let first = match (is_first, held) {
        (true, _) => Check::new(key, beside, random.cost(2)),
        (false, true) => Check::hold_first_of(key, alternatives, cost),
        (false, false) => Check::first_of(key, alternatives, cost),
    };
    match (is_first, held) {
        (true, false) => first.and_first_of(key, alternatives, cost),
        (true, true) => first.and_hold_first_of(key, alternatives, cost),
        (false, _) if random.one_in(2) => first.and(key, beside, random.cost(2)),
        (false, _) => first,
    }
}

/// A change of a hold that was made, which may have ended.
fn change(random: &mut Random, made: &[(Charge, u64)]) -> (Charge, HoldChange) {
    // Mostly one of the last, which may be open.
    let last = made.len().min(random.pick(&[1, 4, usize::MAX]));
    let (hold, cost) = &made[made.len() - 1 - random.index(last)];
    let change = match random.below(8) {
        0 | 1 => HoldChange::Renew,
        2 | 3 => HoldChange::Settle(0),
        4 => HoldChange::Settle(*cost),
        5 => HoldChange::Settle(cost * 2),
        // The oracle knows no end of the time by which a bucket can be overdrawn.
        6 if random.one_in(20) => {
            HoldChange::Settle(hold.policy.burst().map_or(u64::MAX, |_| cost.saturating_mul(1 << 20)))
        }
        _ => HoldChange::Settle(random.cost(*cost)),
    };
    (hold.clone(), change)
}

async fn answer<T>(answer: Answer<T>) -> T {
    match answer {
        Answer::Ready(result) => result.unwrap(),
        Answer::Pending(pending) => pending.await.unwrap(),
    }
}
