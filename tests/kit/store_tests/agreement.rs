//! Random traces that the store and the [`Oracle`] decide alike, in every field.

use std::{collections::HashMap, time::Duration};

use tollgate::store::{Charge, CountChange};
use tollgate::{Check, Key, Policy, clock::Clock};

use crate::decision::{Decision, Standing};
use crate::failure::{NotPassed, Tested, ensure_eq};
use crate::oracle::{Oracle, micros};
use crate::{feature::Feature, random::Random, tested_store::TestedStore};

const SEEDS: u64 = 12;
const CHECKS: usize = 80;
const KEYS: [&str; 3] = ["a", "b", "c"];

pub(super) async fn law_12_random_traces_agree_with_the_oracle(store: TestedStore) -> Tested {
    traces(store, false).await
}

pub(super) async fn law_12_random_traces_with_changes_by_hand_agree_with_the_oracle(store: TestedStore) -> Tested {
    store.requires(Feature::CountChanges)?;
    traces(store, true).await
}

pub(super) async fn law_12_random_traces_with_peeks_and_partial_charges_agree_with_the_oracle(
    store: TestedStore,
) -> Tested {
    store.requires(Feature::PartialCharges)?;
    store.requires(Feature::CountChanges)?;
    for seed in 0..SEEDS {
        let mut random = Random(1_000 + seed);
        let policies = policies(&store, &mut random, seed)?;
        partial_charges(&store, &mut random, &policies).await.map_err(|ended| of_seed(seed, ended))?;
    }
    Ok(())
}

/// Sends random checks, peeks at costs and charges of as much as fits, and compares them with the oracles. Bans keys
/// and charges units by hand meanwhile.
async fn partial_charges(store: &TestedStore, random: &mut Random, policies: &[Policy]) -> Tested {
    let mut oracles = Oracles::default();
    for number in 0..2 * CHECKS {
        let step = *random.pick(&[0, 1, 700, 9_000, 250_000]);
        store.clock.advance(Duration::from_micros(random.below(step + 1)));
        let now_us = store.clock.now_us();
        let (check, (key, policy, units)) = (check(random, policies), charge(random, policies));
        match random.below(6) {
            0 | 1 => {
                let peek = store.peek_at(check.clone()).await?;
                ensure_eq!(Seen::all(&peek), oracles.peek(&check, now_us), "peek {number} at {check:?}");
            }
            2 | 3 => {
                let units = units.max(1);
                let (charged, decision) = store.charge_up_to(key, policy, units).await?;
                let expected = oracles.charge_up_to(key, policy, units, now_us);
                ensure_eq!((charged, Seen::all(&decision)), expected, "charge {number} of up to {units}, {policy:?}");
            }
            4 => {
                let change = change(random, policy);
                let changed = store.change_count(key, policy, change).await?;
                ensure_eq!(changed, oracles.change(key, policy, change, now_us), "step {number}, {change:?}");
            }
            _ => {
                let decision = store.check_all(check.clone()).await?;
                ensure_eq!(Seen::all(&decision), oracles.decide(&check, now_us), "check {number}, {check:?}");
            }
        }
    }
    Ok(())
}

async fn traces(store: TestedStore, by_hand: bool) -> Tested {
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let policies = policies(&store, &mut random, seed)?;
        trace(&store, &mut random, &policies, by_hand, Oracles::default())
            .await
            .map_err(|ended| of_seed(seed, ended))?;
    }
    Ok(())
}

/// Names the seed in a failure.
pub(super) fn of_seed(seed: u64, ended: NotPassed) -> NotPassed {
    match ended {
        NotPassed::Failed(why) => NotPassed::Failed(format!("seed {seed}: {why}")),
        skipped @ NotPassed::Skipped(_) => skipped,
    }
}

/// Policies of all algorithms that the store has.
fn policies(store: &TestedStore, random: &mut Random, seed: u64) -> Result<Vec<Policy>, NotPassed> {
    let can_count_rejected = store.requires(Feature::CountRejected).is_ok();
    let can_round = store.requires(Feature::Resolution).is_ok();
    let mut policies = Vec::new();
    for algorithm in store.algorithms()? {
        for resolution in [1, 4_000] {
            let (name, window) = (format!("{algorithm:?}-{resolution}-{seed}"), 1 + random.below(200_000));
            let limit = *random.pick(&[1, 3, 20, 1_000, (1 << 32) + 1, Policy::MAX_LIMIT]);
            let mut policy = Policy::new(name, limit, Duration::from_micros(window))?.with_algorithm(algorithm);
            if policy.resolution().is_some() && can_round && resolution <= window {
                policy = policy.with_resolution(Duration::from_micros(resolution));
            } else if policy.burst().is_some() && resolution > 1 {
                policy = policy.with_burst(limit.div_ceil(2));
            }
            policies.push(policy.with_denials_counted(can_count_rejected && random.below(3) == 0));
        }
    }
    Ok(policies)
}

/// Sends random checks under these policies, and compares each decision with the oracles of its counts. Changes counts
/// meanwhile if the trace is to change them `by_hand`.
pub(super) async fn trace(
    store: &TestedStore,
    random: &mut Random,
    policies: &[Policy],
    by_hand: bool,
    mut oracles: Oracles,
) -> Tested {
    for number in 0..CHECKS {
        store.clock.advance(Duration::from_micros(oracles.step_us(random, store.clock.now_us())));
        let now_us = store.clock.now_us();
        if by_hand && random.below(3) == 0 {
            let (key, policy) = (*random.pick(&KEYS), random.pick(policies));
            let change = change(random, policy);
            let changed = store.change_count(key, policy, change).await?;
            ensure_eq!(changed, oracles.change(key, policy, change, now_us), "step {number}, {change:?} of {policy:?}");
            continue;
        }
        let check = check(random, policies);
        let decision = store.check_all(check.clone()).await?;
        ensure_eq!(Seen::all(&decision), oracles.decide(&check, now_us), "check {number}, {check:?}");
    }
    Ok(())
}

/// A change by hand.
fn change(random: &mut Random, policy: &Policy) -> CountChange {
    let most = *random.pick(&[1, policy.capacity().min(4), 2 * policy.capacity()]);
    match random.below(6) {
        0 => CountChange::Ban(Duration::from_micros(1 + random.below(300_000))),
        1 => CountChange::Unban,
        2 | 3 => CountChange::Record(random.cost(most)),
        _ => CountChange::Credit(random.cost(most)),
    }
}

/// A check of up to three charges.
fn check(random: &mut Random, policies: &[Policy]) -> Check {
    let more = random.below(3);
    let (key, policy, cost) = charge(random, policies);
    let mut check = Check::new(key, policy, cost);
    for _ in 0..more {
        let (key, policy, cost) = charge(random, policies);
        check = check.and(key, policy, cost);
    }
    check
}

/// The key, the policy and the cost of a charge.
fn charge<'a>(random: &mut Random, policies: &'a [Policy]) -> (&'static str, &'a Policy, u64) {
    let policy = random.pick(policies);
    let most = *random.pick(&[1, policy.capacity().min(4), policy.capacity(), policy.capacity() + 1]);
    let cost = match random.below(32) {
        0..=3 => 0,
        4 => u64::MAX,
        _ => random.cost(most),
    };
    (*random.pick(&KEYS), policy, cost)
}

/// What a decision says of one charge.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    fits: bool,
    available: u64,
    retry_after: Option<Duration>,
    next: Duration,
    reset: Duration,
    ban: Option<Duration>,
}

impl Seen {
    pub(super) fn all(decision: &Decision) -> (bool, Vec<Self>) {
        let of = |standing: &Standing| Self {
            fits: !standing.violated,
            available: standing.available,
            retry_after: standing.retry_after,
            next: standing.next,
            reset: standing.reset,
            ban: standing.ban,
        };
        (decision.is_allowed(), decision.policies().iter().map(of).collect())
    }
}

/// The oracle of every count that has been charged or asked for.
#[derive(Default)]
pub(super) struct Oracles {
    /// The oracle of a count, and the end of a ban by hand; 0 without one.
    counts: HashMap<(Key, String), (Oracle, u64)>,
    /// The starts of the windows of calendar policies, by name.
    starts_us: HashMap<String, Vec<u64>>,
}

impl Oracles {
    /// Oracles of calendar policies, with the starts of their windows by name.
    pub(super) fn of_calendars(starts_us: HashMap<String, Vec<u64>>) -> Self {
        Self { starts_us, ..Self::default() }
    }

    /// What a store has to decide: it evaluates all charges, then commits all or none.
    pub(super) fn decide(&mut self, check: &Check, now_us: u64) -> (bool, Vec<Seen>) {
        self.judge(check, now_us, true)
    }

    /// What a store has to say of a check that is not charged.
    pub(super) fn peek(&mut self, check: &Check, now_us: u64) -> (bool, Vec<Seen>) {
        self.judge(check, now_us, false)
    }

    /// The units that a store has to charge, and what it has to decide.
    pub(super) fn charge_up_to(
        &mut self,
        key: &str,
        policy: &Policy,
        units: u64,
        now_us: u64,
    ) -> (u64, (bool, Vec<Seen>)) {
        let (oracle, until_us) = self.of(&key.into(), policy);
        let available = if *until_us > now_us { 0 } else { oracle.available(policy, now_us) };
        let charged = units.min(available);
        (charged, self.decide(&Check::new(key, policy, charged.max(1)), now_us))
    }

    fn judge(&mut self, check: &Check, now_us: u64, commits: bool) -> (bool, Vec<Seen>) {
        let left: Vec<u64> = check
            .charges()
            .iter()
            .map(|charge| self.of(&charge.key, &charge.policy).1.saturating_sub(now_us))
            .collect();
        // A ban does not deny what costs nothing, and then stops no count.
        let is_banned = check.charges().iter().zip(&left).any(|(charge, left_us)| charge.cost > 0 && *left_us > 0);
        let fits = |(charge, left_us): (&Charge, &u64)| {
            charge.cost == 0
                || *left_us == 0 && self.of(&charge.key, &charge.policy).0.fits(&charge.policy, now_us, charge.cost)
        };
        let fitted: Vec<bool> = check.charges().iter().zip(&left).map(fits).collect();
        let allowed = fitted.iter().all(|fitted| *fitted);
        let seen = check.charges().iter().zip(fitted).zip(left).map(|((charge, fitted), left_us)| {
            let (policy, cost) = (&charge.policy, charge.cost);
            let ((oracle, _), capacity) = (self.of(&charge.key, policy), policy.capacity());
            let is_counted = commits && (allowed || policy.denials_counted() && !is_banned);
            if (1..=capacity).contains(&cost) && is_counted {
                oracle.charge(policy, now_us, cost, allowed);
            }
            // After a denial, the counted denial itself may be what exceeds the limit.
            let fits = fitted && (allowed || !commits || oracle.fits(policy, now_us, cost));
            let available = oracle.available(policy, now_us);
            let left = Duration::from_micros(left_us);
            Seen {
                fits,
                available: if left_us > 0 { 0 } else { available },
                retry_after: (!fits && cost <= capacity).then(|| oracle.wait(policy, now_us, cost).max(left)),
                next: match available {
                    _ if available == capacity => left,
                    _ if left_us > 0 && available > 0 => left,
                    _ => oracle.wait(policy, now_us, available + 1).max(left),
                },
                reset: oracle.wait(policy, now_us, capacity).max(left),
                ban: (left_us > 0).then_some(left),
            }
        });
        (allowed, seen.collect())
    }

    /// How far the clock moves before the next check. Among calendars, often to a microsecond around the next boundary.
    fn step_us(&self, random: &mut Random, now_us: u64) -> u64 {
        if self.starts_us.is_empty() {
            let step = *random.pick(&[0, 1, 700, 9_000, 250_000]);
            return random.below(step + 1);
        }
        let next = self.starts_us.values().flatten().filter(|start_us| **start_us > now_us + 1).min();
        let until_next = next.map_or(1, |start_us| start_us - now_us);
        match random.below(8) {
            0..=3 => 0,
            4 => until_next - 1,
            5 => until_next,
            6 => until_next + 1,
            _ => random.below(40 * 86_400_000_000),
        }
    }

    /// What a store has to answer to a change by hand.
    pub(super) fn change(&mut self, key: &str, policy: &Policy, change: CountChange, now_us: u64) -> u64 {
        let (oracle, until_us) = self.of(&key.into(), policy);
        match change {
            CountChange::Ban(duration) => {
                *until_us = now_us + micros(duration);
                0
            }
            CountChange::Unban => {
                let was_banned = *until_us > now_us;
                *until_us = 0;
                was_banned.into()
            }
            CountChange::Record(units) => {
                oracle.charge(policy, now_us, units, true);
                units.min(Policy::MAX_LIMIT)
            }
            CountChange::Credit(units) => oracle.credit(policy, now_us, units),
            _ => unreachable!("a trace makes no other change"),
        }
    }

    fn of(&mut self, key: &Key, policy: &Policy) -> &mut (Oracle, u64) {
        let new = || match self.starts_us.get(policy.name()) {
            Some(starts_us) => (Oracle::of_calendar(starts_us.clone()), 0),
            None => (Oracle::new(policy.resolution().map_or(1, micros)), 0),
        };
        self.counts.entry((key.clone(), policy.name().to_owned())).or_insert_with(new)
    }
}
