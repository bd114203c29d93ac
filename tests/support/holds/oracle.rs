//! The oracle of holds: a list of charges and a list of holds, summed at each step.

use std::{collections::HashMap, num::NonZeroU64, time::Duration};

use tollgate::{
    Check, Key, Policy,
    store::{Charge, HoldChange, Outcome, SettleAnswer},
};
use tollgate_testing::Oracle;

/// The oracle of every count that has been asked for.
#[derive(Default)]
pub(super) struct Oracles(HashMap<(Key, String), HoldOracle>);

/// What one key has spent and holds under one policy.
struct HoldOracle {
    charged: Oracle,
    open: Vec<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: NonZeroU64,
    units: u64,
    ends_us: u64,
}

impl Oracles {
    /// What a store has to decide: it evaluates all charges, then commits all or none.
    pub(super) fn decide(&mut self, check: &Check, now_us: u64) -> (bool, Vec<Outcome>) {
        let fits = |charge: &Charge| self.of(&charge.key, &charge.policy, now_us).fits(charge, now_us);
        let fitted: Vec<bool> = check.charges().iter().map(fits).collect();
        let charged = charged(check, &fitted);
        let allowed = charged.is_some();
        let charged = charged.unwrap_or_default();
        let outcomes = check.charges().iter().zip(fitted).enumerate().map(|(number, (charge, fits))| {
            let oracle = self.of(&charge.key, &charge.policy, now_us);
            if charged.contains(&number) && charge.cost > 0 {
                oracle.commit(charge, now_us);
            }
            oracle.outcome(charge, fits, now_us)
        });
        (allowed, outcomes.collect())
    }

    pub(super) fn change(&mut self, hold: &Charge, change: HoldChange, now_us: u64) -> SettleAnswer {
        let oracle = self.of(&hold.key, &hold.policy, now_us);
        let Some(place) = oracle.open.iter().position(|held| hold.hold == Some(held.id)) else {
            return SettleAnswer::Expired;
        };
        match change {
            HoldChange::Settle(actual) => {
                oracle.open.remove(place);
                oracle.charged.charge(&hold.policy, now_us, actual, true);
            }
            _ => oracle.open[place].ends_us = now_us + ttl_us(&hold.policy),
        }
        SettleAnswer::Settled
    }

    /// The holds under which a check was judged, for the message of a failure.
    pub(super) fn held_by(&self, check: &Check) -> Vec<impl std::fmt::Debug> {
        let of = |charge: &Charge| self.0.get(&(charge.key.clone(), charge.policy.name().to_owned()));
        check.charges().iter().filter_map(of).map(|oracle| oracle.open.clone()).collect()
    }

    /// The oracle of a count, after its holds have ended that end by now.
    fn of(&mut self, key: &Key, policy: &Policy, now_us: u64) -> &mut HoldOracle {
        let new = || HoldOracle { charged: Oracle::new(policy.resolution().map_or(1, micros)), open: Vec::new() };
        let oracle = self.0.entry((key.clone(), policy.name().to_owned())).or_insert_with(new);
        oracle.open.sort_by_key(|held| held.ends_us);
        while let Some(held) = oracle.open.first().copied().filter(|held| held.ends_us <= now_us) {
            oracle.open.remove(0);
            if !policy.holds().unwrap().unsettled_released() {
                oracle.charged.charge(policy, held.ends_us, held.units, true);
            }
        }
        oracle
    }
}

/// The numbers of the charges that are charged, of alternatives the first that fits; `None` if the check is denied.
pub(super) fn charged(check: &Check, fitted: &[bool]) -> Option<Vec<usize>> {
    let (mut charged, mut from) = (Vec::new(), 0);
    for (last, charge) in check.charges().iter().enumerate() {
        if charge.has_alternative() {
            continue;
        }
        match (from..=last).find(|number| fitted[*number]) {
            Some(first) => charged.push(first),
            None if charge.policy.is_shadow() => {}
            None => return None,
        }
        from = last + 1;
    }
    Some(charged)
}

impl HoldOracle {
    fn held(&self) -> u64 {
        self.open.iter().map(|held| held.units).sum()
    }

    fn fits(&self, charge: &Charge, now_us: u64) -> bool {
        let asked = self.held().saturating_add(charge.cost);
        charge.cost == 0 || self.charged.fits(&charge.policy, now_us, asked)
    }

    fn commit(&mut self, charge: &Charge, now_us: u64) {
        match charge.hold {
            Some(id) => {
                let ends_us = now_us + ttl_us(&charge.policy);
                self.open.push(Held { id, units: charge.cost, ends_us });
            }
            None => self.charged.charge(&charge.policy, now_us, charge.cost, true),
        }
    }

    fn outcome(&self, charge: &Charge, fits: bool, now_us: u64) -> Outcome {
        let Charge { policy, cost, .. } = charge;
        let available = self.charged.available(policy, now_us).saturating_sub(self.held());
        let capacity = policy.capacity();
        Outcome {
            fits,
            available,
            retry_after_us: (!fits && *cost <= capacity).then(|| self.wait(policy, *cost, now_us)),
            next_us: if available < capacity { self.wait(policy, available + 1, now_us) } else { 0 },
            reset_us: if available < capacity { self.wait(policy, capacity, now_us) } else { 0 },
            ban_us: 0,
        }
    }

    /// The time until a cost that does not fit now fits for certain, if the charges allow it; not longer than a hold
    /// typically lasts if only holds are in the way.
    fn wait(&self, policy: &Policy, cost: u64, now_us: u64) -> u64 {
        let for_charges = micros(self.charged.wait(policy, now_us, cost));
        let held = self.held();
        if held == 0 {
            return for_charges;
        }
        let holds = policy.holds().unwrap();
        let mut for_holds = micros(holds.typical_duration());
        if held + cost <= policy.capacity() {
            let beside_them = held + cost;
            for_holds = for_holds.min(micros(self.charged.wait(policy, now_us, beside_them)));
        }
        if holds.unsettled_released() {
            let last = self.open.iter().map(|held| held.ends_us).max().unwrap();
            for_holds = for_holds.min(last - now_us);
        }
        for_charges.max(for_holds).max(1)
    }
}

fn ttl_us(policy: &Policy) -> u64 {
    micros(policy.holds().unwrap().ttl())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
