//! What the store said last about a key, as an outcome of what is spent since.

use tokio::time::Instant;

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
    pub(super) fn available(&self) -> u32 {
        self.outcome.available
    }

    /// The verdict on a unit that was spent from a block. `left` is what the blocks have left.
    #[inline]
    pub(super) fn verdict(&self, policy: &Policy, left: u32, now: Instant) -> Verdict {
        let passed = micros(now.saturating_duration_since(self.at));
        let outcome = Outcome {
            fits: true,
            available: left.saturating_add(self.outcome.available).min(policy.capacity()),
            retry_after_us: None,
            next_us: self.outcome.next_us.saturating_sub(passed).max(1),
            reset_us: self.outcome.reset_us.saturating_sub(passed).max(1),
            ban_us: 0,
        };
        let mut verdict = Verdict::of_one(outcome, policy, self.time_us.saturating_add(passed));
        verdict.source = Source::Lease;
        verdict
    }
}
