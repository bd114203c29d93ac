//! Which shard the first attempt of a check asks.
//!
//! The checks of a limiter take the shards in turn, several in a row the same one. Checks of one slot share a call of
//! Redis. A random shard for each check would leave calls with few checks, and a check that is alone in its call costs
//! Redis more than twice the time. Turns also load the shards more evenly than chance does. Each round begins at a
//! random shard, so instances and periodic traffic do not keep in step.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{policy::Policy, runtime::random::RandomState};

/// Counts the checks under policies with shards. Clones of a limiter share it.
#[derive(Debug, Default)]
pub(in crate::limiter) struct ShardTurns {
    checks: AtomicU64,
    random: RandomState,
}

/// The number of one check.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    number: u64,
    random: &'a RandomState,
}

/// The most checks in a row that ask one shard. A call takes up to 128 checks, so half of a full call.
const LONGEST_RUN: u64 = 64;
/// The smallest part of a shard's capacity that a run is not to exceed, so that a run of checks hardly fills a shard.
const RUNS_TO_FILL: u64 = 32;

impl ShardTurns {
    /// The turn of the next check.
    pub(super) fn next(&self) -> Turn<'_> {
        Turn { number: self.checks.fetch_add(1, Ordering::Relaxed), random: &self.random }
    }
}

impl Turn<'_> {
    /// The shard of the charge with this index.
    pub(super) fn shard_of(self, index: usize, policy: &Policy) -> u32 {
        let shards = u64::from(policy.shards());
        let run = self.number / (policy.capacity() / RUNS_TO_FILL).clamp(1, LONGEST_RUN);
        let (round, place) = (run / shards, run % shards);
        u32::try_from((place + self.random.hash_one((round, index)) % shards) % shards).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(policy: &Policy, turns: impl Iterator<Item = u64>) -> Vec<u32> {
        let random = &RandomState::default();
        turns.map(|number| Turn { number, random }.shard_of(0, policy)).collect()
    }

    #[test]
    fn each_round_has_a_run_of_checks_for_each_shard() {
        for (limit, count, run) in [(8, 8, 1), (1_000, 8, 3), (100_000, 5, 64), (Policy::MAX_LIMIT, 64, 64), (9, 1, 1)]
        {
            let policy = Policy::per_minute("p", limit).unwrap().with_shards(count);
            let checks = u64::from(count) * run;
            for round in 0..10 {
                let round = shards(&policy, round * checks..(round + 1) * checks);
                let runs: Vec<&[u32]> = round.chunk_by(|one, next| one == next).collect();
                assert!(runs.iter().all(|checks| checks.len() as u64 == run), "{limit} in {count}: {round:?}");
                let mut found: Vec<u32> = runs.iter().map(|run| run[0]).collect();
                found.sort_unstable();
                assert_eq!(found, (0..count).collect::<Vec<_>>());
            }
        }
    }

    /// Every eighth check, such as those of one key among eight, asks all shards.
    #[test]
    fn rounds_begin_at_random() {
        let policy = Policy::per_minute("p", 8).unwrap().with_shards(8);
        for phase in 0..8 {
            let mut found = shards(&policy, (0..1_000).map(|round| 8 * round + phase));
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, (0..8).collect::<Vec<_>>());
        }
    }
}
