//! What the store said last about a key, as an outcome of what is spent since.

use tokio::time::Instant;

use super::blocks::Spending;
use crate::{
    clock::micros,
    policy::Policy,
    verdict::{Outcome, Source, Verdict},
};

/// The last outcome of a key under a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    outcome: Outcome,
    time_us: u64,
    /// When the verdict was received.
    at: Instant,
}

impl Standing {
    pub(super) fn new(outcome: Outcome, time_us: u64, at: Instant) -> Self {
        Self { outcome, time_us, at }
    }

    /// The units that the store had left. Units of this process's blocks are not in it.
    pub(super) fn available(&self) -> u64 {
        self.outcome.available
    }

    /// The verdict on units that were spent from blocks.
    ///
    /// Its time is an estimate that is never later than the store's clock, because an answer has always taken a while.
    /// It may be earlier, but not before the store held the units: otherwise units of two processes could seem to be in
    /// one window although they are not.
    #[inline]
    pub(super) fn verdict(&self, policy: &Policy, spending: Spending, now: Instant) -> Verdict {
        let Spending { left, held_from_us } = spending;
        let passed = micros(now.saturating_duration_since(self.at));
        let outcome = Outcome {
            fits: true,
            available: left.saturating_add(self.outcome.available).min(policy.capacity()),
            retry_after_us: None,
            next_us: self.outcome.next_us.saturating_sub(passed).max(1),
            reset_us: self.outcome.reset_us.saturating_sub(passed).max(1),
            ban_us: 0,
        };
        let time_us = self.time_us.saturating_add(passed).max(held_from_us);
        let mut verdict = Verdict::of_one(outcome, policy, time_us);
        verdict.source = Source::Lease;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An answer that was on its way for longer is learned after the one with the block.
    #[tokio::test(start_paused = true)]
    async fn a_unit_is_not_dated_before_its_block_was_held() {
        let policy = Policy::per_minute("p", 10).unwrap();
        let outcome = Outcome { fits: true, available: 9, retry_after_us: None, next_us: 1, reset_us: 1, ban_us: 0 };
        let received = Instant::now();
        let standing = Standing::new(outcome, 1_000, received);
        let time = |held_from_us, passed_us| {
            let now = received + Duration::from_micros(passed_us);
            standing.verdict(&policy, Spending { left: 0, held_from_us }, now).time_us
        };
        assert_eq!((time(500, 0), time(500, 700), time(1_500, 0), time(1_500, 700)), (1_000, 1_700, 1_500, 1_700));
    }
}
