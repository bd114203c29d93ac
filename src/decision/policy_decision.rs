//! Where one policy stands after a check.

use std::time::Duration;

use crate::{check::Charge, key::partition::PartitionKey, policy::Policy, verdict::Outcome};

/// Where one policy stands after a check. All waits count from the decision.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let decision =
///     limiter.check("user:17", &Policy::per_minute("emails", 10)?, 3).await?;
/// let standing = &decision.policies()[0];
/// assert_eq!(
///     (standing.cost, standing.available, standing.violated),
///     (3, 7, false)
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyDecision {
    /// The policy. If the source is [`Source::Local`](crate::decision::Source::Local), this is still the whole policy,
    /// because a share would disclose the number of instances to clients. The other fields then describe the share.
    pub policy: Policy,
    /// The cost under this policy, in units; 0 for a [peek](crate::Limiter::peek).
    pub cost: u64,
    /// Whether the check was denied because of this policy. For a [peek](crate::Limiter::peek), whether a cost of 1
    /// would be denied. Always `false` under a [shadow](Policy::with_shadow) policy.
    pub violated: bool,
    /// Whether the cost did not fit under a [shadow](Policy::with_shadow) policy, which would deny it if it were
    /// enforced. For a peek, whether it would deny a cost of 1. Always `false` under an enforced policy.
    pub would_deny: bool,
    /// The largest cost that would pass now. 0 if another policy of the check is [blocked](Policy::blocked), because
    /// nothing else is then looked up.
    pub available: u64,
    /// Time until the same cost fits if nothing else is charged (for a peek, a cost of 1). `None` if the cost fits or
    /// can never fit.
    pub retry_after: Option<Duration>,
    /// Time until more becomes available; zero if nothing is spent. A wait for open [holds](crate::Limiter::hold) is
    /// as inexact as that of [`Decision::retry_after`](crate::Decision::retry_after).
    pub next: Duration,
    /// Time until the whole capacity is available again. A wait for open holds is inexact too.
    pub reset: Duration,
    pub(crate) partition_key: Option<PartitionKey>,
    /// Time until a [ban](Policy::ban_after) ends; `None` without a ban. Nothing is available during a ban.
    pub ban: Option<Duration>,
}

impl PolicyDecision {
    #[inline(always)]
    pub(super) fn new(charge: Charge, partition_key: Option<PartitionKey>, outcome: &Outcome) -> Self {
        let Charge { policy, cost, .. } = charge;
        let &Outcome { fits, available, retry_after_us, next_us, reset_us, ban_us } = outcome;
        let would_deny = !fits && policy.is_shadow();
        // Some shards are larger by a unit, but no check may cost that much.
        let (available, next_us) = match policy.is_sharded() && available >= policy.capacity() {
            true => (policy.capacity(), 0),
            false => (available, next_us),
        };
        Self {
            partition_key,
            policy,
            cost,
            violated: !fits && !would_deny,
            would_deny,
            available,
            retry_after: retry_after_us.map(Duration::from_micros),
            next: Duration::from_micros(next_us),
            reset: Duration::from_micros(reset_us),
            ban: (ban_us > 0).then(|| Duration::from_micros(ban_us)),
        }
    }

    /// The partition key, if the policy [discloses it](Policy::with_partition_keys).
    pub(crate) fn partition_key(&self) -> Option<&[u8]> {
        self.partition_key.as_ref().map(PartitionKey::as_bytes)
    }

    /// Whether the policy is a [shadow](Policy::with_shadow) policy, which refuses nothing.
    #[inline]
    pub(crate) fn is_shadow(&self) -> bool {
        self.policy.is_shadow()
    }

    /// Whether the cost exceeds the policy's [capacity](Policy::capacity), so that no wait helps.
    pub(crate) fn never_fits(&self) -> bool {
        self.cost > self.policy.capacity()
    }
}
