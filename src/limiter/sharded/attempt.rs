//! Attempts: the shards that one call of the store asks for a check.

use std::hash::BuildHasher;

use smallvec::SmallVec;

use super::turn::Turns;
use crate::{
    check::{Charge, Check},
    runtime::random::RandomState,
    verdict::Verdict,
};

/// A check for which a shard is chosen wherever a policy has shards.
pub(super) struct Attempt {
    /// What the store gets. The charges are in the order of the check's.
    pub(super) sent: Check,
    /// The number of each charge's shard; 0 without shards.
    numbers: SmallVec<[u32; 1]>,
}

impl Attempt {
    /// Chooses the shard of each charge whose turn it is.
    pub(super) fn first(check: &Check, turns: &Turns) -> Self {
        let turn = turns.next();
        Self::of(check, |index, Charge { policy, cost, .. }| match *cost > policy.capacity() {
            // No shard is smaller than the last one. So a cost above the capacity never passes, not even in a larger
            // shard.
            true => policy.shards() - 1,
            false => turn.shard_of(index, policy),
        })
    }

    /// Chooses another shard, at random, wherever the shard of this attempt was full.
    ///
    /// `None` if the first attempt has charged anything. `None` if no other shard could let the check pass, because a
    /// policy without shards denies it too or a cost fits no shard. `None` also if a policy counts denials, because
    /// it would count both attempts.
    pub(super) fn second(&self, check: &Check, denial: &Verdict) -> Option<Self> {
        let is_full = |index: usize| denial.outcomes.get(index).is_some_and(|outcome| !outcome.fits);
        let is_hopeful = |Charge { policy, cost, .. }: &Charge| policy.is_sharded() && *cost <= policy.capacity();
        // Shadow policies decide nothing, except in an allowed check that has charged nothing.
        let decides = |charge: &Charge| denial.allowed || !charge.policy.is_shadow();
        let mut full =
            check.charges().iter().enumerate().filter(|(index, charge)| is_full(*index) && decides(charge)).peekable();
        if denial.charged(check).next().is_some()
            || full.peek().is_none()
            || !full.all(|(_, charge)| is_hopeful(charge))
            || check.charges().iter().any(|charge| charge.policy.denials_counted())
        {
            return None;
        }
        let random = RandomState::default();
        Some(Self::of(check, |index, Charge { policy, .. }| match is_full(index) {
            true => other(self.numbers[index], policy.shards(), random.hash_one(index)),
            false => self.numbers[index],
        }))
    }

    fn of(check: &Check, shard_of: impl Fn(usize, &Charge) -> u32) -> Self {
        let charges = check.charges().iter().enumerate();
        let numbers: SmallVec<[u32; 1]> = charges.map(|(index, charge)| shard_of(index, charge)).collect();
        let sent = check.charges().iter().zip(&numbers).map(|(charge, number)| charge.of_shard(*number));
        Self { sent: Check::of_distinct(sent), numbers }
    }
}

/// Of two denials of a check, the one with the shorter wait: its shard has room again first.
pub(super) fn milder(first: Verdict, second: Verdict) -> Verdict {
    if second.allowed || wait_us(&second) < wait_us(&first) { second } else { first }
}

/// The time until a denied check passes; the longest time if it never does.
fn wait_us(denial: &Verdict) -> u64 {
    let violated = denial.outcomes.iter().filter(|outcome| !outcome.fits);
    violated.map(|outcome| outcome.retry_after_us.unwrap_or(u64::MAX)).max().unwrap_or(u64::MAX)
}

/// Any other shard than `number`. There are few shards, so the results are equally likely.
fn other(number: u32, shards: u32, random: u64) -> u32 {
    let distance = 1 + random % u64::from(shards - 1).max(1);
    u32::try_from((u64::from(number) + distance) % u64::from(shards)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_shard_is_any_but_the_first() {
        for shards in 2..=64 {
            for number in 0..shards {
                let mut others: Vec<_> =
                    (0..u64::from(shards - 1)).map(|random| other(number, shards, random)).collect();
                others.push(number);
                others.sort_unstable();
                assert_eq!(others, (0..shards).collect::<Vec<_>>());
            }
        }
    }
}
