//! Random traces that the store and the [`Oracle`] decide alike, in every field.

use std::{collections::HashMap, time::Duration};

use crate::{
    check::{Charge, Check},
    clock::Clock,
    decision::{Decision, PolicyDecision},
    key::Key,
    policy::Policy,
    testing::{
        failure::{NotPassed, Tested, ensure_eq},
        feature::Feature,
        oracle::Oracle,
        random::Random,
        tested_store::TestedStore,
    },
};

const SEEDS: u64 = 12;
const CHECKS: usize = 80;
const KEYS: [&str; 3] = ["a", "b", "c"];

pub(super) async fn law_12_random_traces_agree_with_the_oracle(store: TestedStore) -> Tested {
    let can_count_rejected = store.requires(Feature::CountRejected).is_ok();
    let can_round = store.requires(Feature::Resolution).is_ok();
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let mut policies = Vec::new();
        for algorithm in store.algorithms()? {
            for resolution in [1, 4_000] {
                let (name, window) = (format!("{algorithm:?}-{resolution}-{seed}"), 1 + random.below(200_000));
                let limit = *random.pick(&[1, 3, 20, 1_000]);
                let mut policy = Policy::new(name, limit, Duration::from_micros(window))?.with_algorithm(algorithm);
                if policy.resolution().is_some() && can_round && resolution <= window {
                    policy = policy.with_resolution(Duration::from_micros(resolution))?;
                } else if policy.burst().is_some() && resolution > 1 {
                    policy = policy.with_burst(limit.div_ceil(2))?;
                }
                policies.push(policy.with_count_rejected(can_count_rejected && random.below(3) == 0));
            }
        }
        trace(&store, &mut random, &policies).await.map_err(|ended| match ended {
            NotPassed::Failed(why) => NotPassed::Failed(format!("seed {seed}: {why}")),
            skipped @ NotPassed::Skipped(_) => skipped,
        })?;
    }
    Ok(())
}

/// Sends random checks under these policies, and compares each decision with the oracles of its counts.
async fn trace(store: &TestedStore, random: &mut Random, policies: &[Policy]) -> Tested {
    let mut oracles = Oracles::default();
    for number in 0..CHECKS {
        let step = *random.pick(&[0, 1, 700, 9_000, 250_000]);
        store.clock.advance(Duration::from_micros(random.below(step + 1)));
        let check = check(random, policies)?;
        let decision = store.check_all(check.clone()).await?;
        let expected = oracles.decide(&check, store.clock.now_us());
        ensure_eq!(Seen::all(&decision), expected, "check {number}, {check:?}");
    }
    Ok(())
}

/// A check of up to three charges.
fn check(random: &mut Random, policies: &[Policy]) -> Result<Check, NotPassed> {
    let mut check = Check::empty();
    for _ in 0..1 + random.below(3) {
        let policy = random.pick(policies);
        let most = *random.pick(&[1, policy.capacity().min(4), policy.capacity(), policy.capacity() + 1]);
        let cost = if random.below(8) == 0 { 0 } else { random.cost(most) };
        check = check.and(*random.pick(&KEYS), policy, cost)?;
    }
    Ok(check)
}

/// What a decision says of one charge.
#[derive(Debug, PartialEq)]
struct Seen {
    fits: bool,
    available: u32,
    retry_after: Option<Duration>,
    next: Duration,
    reset: Duration,
}

impl Seen {
    fn all(decision: &Decision) -> (bool, Vec<Self>) {
        let of = |standing: &PolicyDecision| Self {
            fits: !standing.violated,
            available: standing.available,
            retry_after: standing.retry_after,
            next: standing.next,
            reset: standing.reset,
        };
        (decision.is_allowed(), decision.policies().iter().map(of).collect())
    }
}

/// The oracle of every count that has been charged or asked for.
#[derive(Default)]
struct Oracles(HashMap<(Key, String), Oracle>);

impl Oracles {
    /// What a store has to decide: it evaluates all charges, then commits all or none.
    fn decide(&mut self, check: &Check, now_us: u64) -> (bool, Vec<Seen>) {
        let fitted: Vec<bool> =
            check.charges().iter().map(|charge| self.of(charge).fits(&charge.policy, now_us, charge.cost)).collect();
        let allowed = fitted.iter().all(|fitted| *fitted);
        let seen = check.charges().iter().zip(fitted).map(|(charge, fitted)| {
            let (oracle, Charge { policy, cost, .. }) = (self.of(charge), charge);
            let (cost, capacity) = (*cost, policy.capacity());
            if (1..=capacity).contains(&cost) && (allowed || policy.count_rejected()) {
                oracle.charge(policy, now_us, cost, allowed);
            }
            // After a denial, the counted rejection itself may be what exceeds the limit.
            let fits = fitted && (allowed || oracle.fits(policy, now_us, cost));
            let available = oracle.available(policy, now_us);
            Seen {
                fits,
                available,
                retry_after: (!fits && cost <= capacity).then(|| oracle.wait(policy, now_us, cost)),
                next: oracle.wait(policy, now_us, if available < capacity { available + 1 } else { 0 }),
                reset: oracle.wait(policy, now_us, capacity),
            }
        });
        (allowed, seen.collect())
    }

    fn of(&mut self, charge: &Charge) -> &mut Oracle {
        let new = || Oracle::new(charge.policy.resolution_us());
        self.0.entry((charge.key.clone(), charge.policy.name().to_owned())).or_insert_with(new)
    }
}
