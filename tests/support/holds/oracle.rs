//! The oracle of holds: a list of charges and a list of holds, summed at each step.

use std::{collections::HashMap, num::NonZeroU64};

use tollgate::store::{Charge, HoldChange, Outcome, SettleAnswer};
use tollgate::{Check, Key, Policy};
use tollgate_testing::Oracle;

use super::bans::{Ban, BanOracle, can_be_denied, micros};

/// The oracle of every count that has been asked for, and the bans of policies by name.
pub(super) struct Oracles {
    counts: HashMap<(Key, String), HoldOracle>,
    bans: HashMap<String, Ban>,
}

/// What one key has spent and holds under one policy.
struct HoldOracle {
    charged: Oracle,
    open: Vec<Held>,
    denied: BanOracle,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: NonZeroU64,
    units: u64,
    ends_us: u64,
}

impl Oracles {
    pub(super) fn new(bans: HashMap<String, Ban>) -> Self {
        Self { counts: HashMap::new(), bans }
    }

    /// The ban that a denial of the charge may lead to.
    fn ban_of(&self, charge: &Charge) -> Option<Ban> {
        self.bans.get(charge.policy.name()).copied()
    }

    /// What a store has to decide: it evaluates all charges, then commits all or none.
    pub(super) fn decide(&mut self, check: &Check, now_us: u64) -> (bool, Vec<Outcome>) {
        let evaluate = |charge: &Charge| {
            let oracle = self.of(&charge.key, &charge.policy, now_us);
            (oracle.fits(charge, now_us), oracle.denied.is_banned(now_us))
        };
        let evaluated: Vec<(bool, bool)> = check.charges().iter().map(evaluate).collect();
        let fits =
            |(charge, (fits, is_banned)): (&Charge, &(bool, bool))| *fits && !(*is_banned && can_be_denied(charge));
        let fitted: Vec<bool> = check.charges().iter().zip(&evaluated).map(fits).collect();
        // A ban that grows and denies a charge stops all counts of denials, unless it is under a shadow policy.
        let grows = |charge: &Charge| self.ban_of(charge).is_some_and(Ban::grows);
        let denies = |charge: &Charge| grows(charge) && can_be_denied(charge) && !charge.policy.is_shadow();
        let stops = check.charges().iter().zip(&evaluated).any(|(charge, (_, is_banned))| *is_banned && denies(charge));
        let charged = charged(check, &fitted);
        let allowed = charged.is_some();
        let charged = charged.unwrap_or_default();
        let outcomes =
            check.charges().iter().zip(evaluated).enumerate().map(|(number, (charge, (fits, is_banned)))| {
                let ban = self.ban_of(charge);
                let oracle = self.of(&charge.key, &charge.policy, now_us);
                if charged.contains(&number) && charge.cost > 0 {
                    oracle.commit(charge, now_us);
                }
                let is_denied = !fits && !is_banned && can_be_denied(charge) && !is_left_out(check, &fitted, number);
                if let Some(ban) = ban.filter(|_| is_denied && !stops) {
                    oracle.denied.deny(ban, &charge.policy, now_us);
                }
                oracle.denied.outcome(charge, oracle.outcome(charge, fits, now_us), now_us)
            });
        (allowed, outcomes.collect())
    }

    pub(super) fn change(&mut self, hold: &Charge, change: HoldChange, now_us: u64) -> SettleAnswer {
        let ban = self.ban_of(hold);
        let oracle = self.of(&hold.key, &hold.policy, now_us);
        let Some(place) = oracle.open.iter().position(|held| hold.hold == Some(held.id)) else {
            return SettleAnswer::Expired;
        };
        match change {
            HoldChange::Settle(actual) => {
                let held = oracle.open.remove(place);
                let asked = oracle.held().saturating_add(actual);
                let fits = actual <= held.units || oracle.charged.fits(&hold.policy, now_us, asked);
                if let Some(ban) = ban.filter(|_| !fits && !oracle.denied.is_banned(now_us)) {
                    oracle.denied.deny(ban, &hold.policy, now_us);
                }
                oracle.charged.charge(&hold.policy, now_us, actual, true);
            }
            _ => oracle.open[place].ends_us = now_us + ttl_us(&hold.policy),
        }
        SettleAnswer::Settled
    }

    /// The holds under which a check was judged, for the message of a failure.
    pub(super) fn held_by(&self, check: &Check) -> Vec<impl std::fmt::Debug> {
        let of = |charge: &Charge| self.counts.get(&(charge.key.clone(), charge.policy.name().to_owned()));
        check.charges().iter().filter_map(of).map(|oracle| oracle.open.clone()).collect()
    }

    /// The oracle of a count, after its holds have ended that end by now.
    fn of(&mut self, key: &Key, policy: &Policy, now_us: u64) -> &mut HoldOracle {
        let new = || HoldOracle {
            charged: Oracle::new(policy.resolution().map_or(1, micros)),
            open: Vec::new(),
            denied: BanOracle::default(),
        };
        let oracle = self.counts.entry((key.clone(), policy.name().to_owned())).or_insert_with(new);
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

/// Whether an alternative to a charge has room, so that the charge is left out.
fn is_left_out(check: &Check, fitted: &[bool], number: usize) -> bool {
    let charges = check.charges();
    let first = (0..number).rev().take_while(|before| charges[*before].has_alternative()).last().unwrap_or(number);
    let last = (number..charges.len()).find(|after| !charges[*after].has_alternative()).unwrap_or(number);
    (first..=last).find(|other| fitted[*other]).is_some_and(|chosen| chosen != number)
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
