//! The keys of a charge one by one, for a slot that moves between two masters. Redis answers calls with one key
//! wherever the key is. `by_key.rs` has the order of these calls.

use redis::Cmd;
use smallvec::SmallVec;

use super::outgoing::{Alone, Request, Step, Then};
use super::packed::{Packed, unknown_format};
use super::redis_key::RedisKeys;
use super::runs::{Runs, usage};
use crate::store::ban::{self, PolicyCost};
use crate::{algorithm::Held, check::Charge, error::Error, key::Key, policy::Policy, verdict::Outcome};

impl Alone {
    /// The records of a key: policy, cost and usage of each. All are about the same key.
    ///
    /// A charge beside units that are held is a check of two charges: one of all these units, which commits nothing,
    /// and the charge itself. A denial is counted behind a charge that never fits.
    fn records(self, charge: &Charge) -> SmallVec<[(PolicyCost<'_>, u8); 2]> {
        let own = ban::own_cost(charge);
        let mut records = SmallVec::new();
        match self {
            Self::Count { held, then } => {
                let counted = if charge.policy.denials_counted() { usage::COUNT_REJECTED } else { 0 };
                let used = match then {
                    Then::Evaluate => usage::EVALUATE,
                    Then::Commit => usage::COMMIT | counted,
                    Then::Try => usage::COMMIT,
                    Then::Reject => usage::EVALUATE | counted,
                };
                if held.units > 0 {
                    let cost = held.units.saturating_add(own.cost);
                    records.push((PolicyCost { cost, ..own }, usage::EVALUATE));
                }
                records.push((own, used));
            }
            Self::Denials { commits } => {
                if let Some(denials) = ban::denial(charge) {
                    if commits {
                        let never = PolicyCost { cost: denials.policy.limit().saturating_add(1), ..denials };
                        records.push((never, usage::EVALUATE));
                    }
                    records.push((denials, if commits { usage::BAN } else { usage::EVALUATE }));
                }
            }
            Self::Holds { .. } => {}
        }
        records
    }

    /// The number of records.
    pub(super) fn len(self, charge: &Charge) -> usize {
        if let Self::Holds { .. } = self { 2 } else { self.records(charge).len() }
    }

    /// Adds the key and the records.
    pub(super) fn write(self, charge: &Charge, key: &Key, keys: &RedisKeys, command: &mut Cmd, runs: &mut Runs) {
        let mut encoded = Vec::new();
        if let (Self::Holds { .. }, Some(holds)) = (self, charge.policy.holds()) {
            keys.encode_holds(&mut encoded, key, &charge.policy);
            command.arg(&encoded).arg(&encoded);
            runs.add_record(&charge.policy, usage::COMMIT, charge.cost, true);
            runs.add_holds(charge, holds, Step::Alone(self));
            return;
        }
        for (PolicyCost { policy, cost, .. }, usage) in self.records(charge) {
            encoded.clear();
            keys.encode(&mut encoded, key, policy);
            command.arg(&encoded);
            runs.add_record(policy, usage, cost, false);
        }
    }

    /// Reads the outcome. That of holds has the units that are held in the place of the available ones, and the end of
    /// the last hold as the time until the reset.
    pub(super) fn read(self, packed: &mut Packed<'_>, charge: &Charge, request: &Request) -> Result<Outcome, Error> {
        if let Self::Holds { .. } = self {
            let _ = (packed.number()?, packed.time()?);
            let ((fits, _, units), last_end) = (packed.number()?, packed.time()?);
            if units > 0 {
                request.outgoing.meets_holds();
            }
            let available = packed.units(units);
            return Ok(Outcome { fits, available, retry_after_us: None, next_us: 0, reset_us: last_end, ban_us: 0 });
        }
        let mut outcomes: SmallVec<[Outcome; 2]> = SmallVec::new();
        for (count, _) in self.records(charge) {
            outcomes.push(packed.outcome(count.policy, count.cost)?);
        }
        match (self, &outcomes[..]) {
            (Self::Count { held, .. }, [all, own]) => Ok(beside(held, &charge.policy, charge.cost, *all, *own)),
            (_, [.., own]) => Ok(*own),
            (_, []) => Err(unknown_format()),
        }
    }
}

/// The outcome of a charge beside units that are held: `all` is the outcome of all these units together, `own` that of
/// the charge without them.
fn beside(held: Held, policy: &Policy, cost: u64, all: Outcome, own: Outcome) -> Outcome {
    let plain = Outcome { fits: cost == 0 || all.fits, ..own };
    let denied = (!plain.fits && cost <= policy.capacity()).then_some(cost);
    let wait = |asked: u64| match asked {
        _ if asked <= plain.available => 0,
        asked if asked == cost.saturating_add(held.units) => all.retry_after_us.unwrap_or(u64::MAX),
        _ if denied == Some(asked) => plain.retry_after_us.unwrap_or(0),
        _ if asked == plain.available + 1 => plain.next_us,
        _ => plain.reset_us,
    };
    held.outcome(policy, 0, plain, denied, wait)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        algorithm::Reported,
        policy::{Algorithm, HoldSettings},
    };

    #[test]
    fn only_what_is_committed_or_counts_denials_changes_its_count() {
        let plain = Policy::per_minute("p", 10).unwrap();
        let counting = plain.clone().with_denials_counted(true);
        let banning = plain.clone().ban_after(5, Duration::from_secs(60));
        let records = |alone: Alone, policy: &Policy| {
            let charge = Charge::new(Key::from("k"), policy.clone(), 3);
            alone.records(&charge).iter().map(|(count, usage)| (*usage, count.cost)).collect::<Vec<_>>()
        };
        let (none, held) = (Held::default(), Held { units: 4, last_end: 0 });
        for (then, usage, of_counting) in
            [(Then::Evaluate, 2, 2), (Then::Commit, 0, 1), (Then::Try, 0, 0), (Then::Reject, 2, 3)]
        {
            let count = |held, policy| records(Alone::Count { held, then }, policy);
            assert_eq!(count(none, &plain), [(usage, 3)], "{then:?}");
            assert_eq!(count(none, &counting), [(of_counting, 3)], "{then:?}");
            assert_eq!(count(held, &plain), [(2, 7), (usage, 3)], "{then:?}");
        }
        assert_eq!(records(Alone::Denials { commits: false }, &banning), [(2, 1)]);
        assert_eq!(records(Alone::Denials { commits: true }, &banning), [(2, 6), (8, 1)]);
    }

    #[test]
    fn a_charge_beside_holds_has_the_same_outcome_whether_its_keys_are_asked_alone_or_together() {
        let typical = HoldSettings::new().with_typical_duration(Duration::from_secs(3_600));
        let policy = Policy::per_minute("p", 10).unwrap().with_algorithm(Algorithm::TokenBucket).with_holds(typical);
        for (spent, units, cost) in (0..=10).flat_map(|spent| (0..132).map(move |n| (spent, 1 + n / 12, n % 12))) {
            // A unit is refilled in six seconds.
            let reported = Reported::TokenBucket { ahead: spent * 6_000_000, fraction: 0 };
            let (room, held) = (10 - spent, Held { units, last_end: 0 });
            let all = reported.outcome(&policy, cost + units, cost + units <= room);
            let own = reported.outcome(&policy, cost, cost <= room);
            let mut alone = beside(held, &policy, cost, all, own);
            let together = reported.outcome_beside(&policy, cost, cost == 0 || cost + units <= room, held);
            if room < units && cost != 1 {
                // The calls for single keys do not ask for the wait of one unit beside the holds.
                alone.next_us = together.next_us;
            }
            assert_eq!(alone, together, "{cost} units beside {units} that are held and {spent} that are spent");
        }
    }
}
