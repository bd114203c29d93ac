//! The outcome of a check.

use std::{
    cmp::Reverse,
    fmt, slice,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use crate::verdict::Source;
use crate::{
    check::{Charge, Check},
    key::partition::PartitionKey,
    policy::Policy,
    verdict::{Outcome, Verdict},
};

/// The outcome of a check: allowed or denied, and where every policy stands.
///
/// The middleware puts it into the extensions of the request, where handlers read it, and of the response, where outer
/// layers do: of every response to a request that was checked, a 429 or 503 of ours included. A refusal has its
/// [`Denial`](crate::rejection::Denial) beside it, and one without a check (no key, say) only that; an exempt request has neither.
///
/// Where several layers check one request, the extensions hold the strictest decision: a denied one before an allowed
/// one, then one that a store has judged before one without a verdict, then the one with the fewest units
/// [available](Self::available).
///
/// # Extractor
///
/// With feature `axum`, handlers take it as an argument. A handler that may also serve requests which no layer has
/// checked takes an `Option<Decision>`.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use tollgate::Decision;
///
/// async fn search(decision: Decision) -> String {
///     format!("{} searches left", decision.available().unwrap_or(0))
/// }
///
/// async fn watch(decision: Option<Decision>) -> &'static str {
///     match decision.and_then(|decision| decision.available()) {
///         Some(0..=9) => "standard quality",
///         _ => "high quality",
///     }
/// }
///
/// let app: axum::Router = axum::Router::new()
///     .route("/search", axum::routing::get(search))
///     .route("/watch", axum::routing::get(watch));
/// # }
/// ```
#[derive(Clone)]
pub struct Decision {
    allowed: bool,
    source: Source,
    time_us: u64,
    policies: Policies,
}

/// One in place, so that a decision is made without an allocation; several are shared, for the request, the response
/// and the layer's future have them each.
#[derive(Clone)]
enum Policies {
    None,
    One(PolicyDecision),
    Several(Arc<[PolicyDecision]>),
}

/// Where one policy stands after a check. All waits count from the decision.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyDecision {
    /// The policy: the whole one if the source is [`Source::Local`] too, because a share would tell clients how many
    /// instances there are. The other fields are then those of the share.
    pub policy: Policy,
    /// What the check owed under it; 0 for a [peek](crate::Limiter::peek).
    pub cost: u32,
    /// Whether the check was denied because of this policy; of a [peek](crate::Limiter::peek), whether a cost of 1
    /// would be.
    pub violated: bool,
    /// The largest cost that would pass now.
    pub available: u32,
    /// Until the same cost (of a peek, a cost of 1) passes if nobody else spends; `None` if it was not refused or can
    /// never pass.
    pub retry_after: Option<Duration>,
    /// Until more becomes available; zero if nothing is spent.
    pub next: Duration,
    /// Until all of it is available again.
    pub reset: Duration,
    pub(crate) partition_key: Option<PartitionKey>,
    /// Until a [ban](Policy::ban_after) ends, before which nothing is available; `None` if there is none.
    pub ban: Option<Duration>,
}

impl PolicyDecision {
    fn new(charge: Charge, outcome: Outcome) -> Self {
        let Charge { policy, cost, key } = charge;
        let Outcome { fits, available, retry_after_us, next_us, reset_us, ban_us } = outcome;
        Self {
            partition_key: policy.partition_key(&key),
            policy,
            cost,
            violated: !fits,
            available,
            retry_after: retry_after_us.map(Duration::from_micros),
            next: Duration::from_micros(next_us),
            reset: Duration::from_micros(reset_us),
            ban: (ban_us > 0).then(|| Duration::from_micros(ban_us)),
        }
    }

    /// Which partition it was counted in, if the policy [tells that](Policy::with_partition_keys).
    pub fn partition_key(&self) -> Option<&[u8]> {
        self.partition_key.as_ref().map(PartitionKey::as_bytes)
    }

    /// Whether the cost is above what can ever pass at once.
    pub fn never_fits(&self) -> bool {
        self.cost > self.policy.capacity()
    }
}

impl Decision {
    /// Takes the charges out of `check`, which is a big thing to move about.
    pub(crate) fn new(check: &mut Check, verdict: Verdict) -> Self {
        let Verdict { allowed, source, time_us, outcomes } = verdict;
        let policies = if let &[outcome] = &outcomes[..]
            && let Some(charge) = check.take_single()
        {
            Policies::One(PolicyDecision::new(charge, outcome))
        } else {
            let both = check.take().zip(outcomes);
            Policies::Several(both.map(|(charge, outcome)| PolicyDecision::new(charge, outcome)).collect())
        };
        Self { allowed, source, time_us, policies }
    }

    /// Answers, after a check that cost nothing, whether a cost of 1 would pass.
    pub(crate) fn answer_peek(&mut self) {
        let policies = match &mut self.policies {
            Policies::None => &mut [],
            Policies::One(policy) => slice::from_mut(policy),
            Policies::Several(policies) => Arc::make_mut(policies),
        };
        for policy in &mut *policies {
            policy.violated = policy.available == 0;
            policy.retry_after = policy.violated.then_some(policy.next);
        }
        self.allowed = policies.iter().all(|policy| !policy.violated);
    }

    pub(crate) fn without_store(allowed: bool, source: Source) -> Self {
        Self { allowed, source, time_us: 0, policies: Policies::None }
    }

    /// The greater of two is the stricter one.
    pub(crate) fn strictness(&self) -> (bool, Option<Reverse<u32>>) {
        (!self.allowed, self.available().map(Reverse))
    }

    /// Whether the request may go on; of a [peek](crate::Limiter::peek), whether a cost of 1 would pass.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Where the decision comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Every policy of the check, in order. Empty if the store did not judge.
    pub fn policies(&self) -> &[PolicyDecision] {
        match &self.policies {
            Policies::None => &[],
            Policies::One(policy) => slice::from_ref(policy),
            Policies::Several(policies) => policies,
        }
    }

    /// The policies because of which the check was denied.
    pub fn violated(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.policies().iter().filter(|policy| policy.violated)
    }

    /// The largest cost that would pass now under all policies; `None` if the store did not judge.
    pub fn available(&self) -> Option<u32> {
        self.policies().iter().map(|policy| policy.available).min()
    }

    /// When the same request passes if nobody else spends: exact for the sliding window log.
    ///
    /// `None` if it was allowed, if it can never pass, or if the store did not judge.
    pub fn retry_after(&self) -> Option<Duration> {
        // One hopeless policy makes the whole request hopeless.
        let mut waits = self.violated().map(|policy| policy.retry_after);
        let first = waits.next()??;
        waits.try_fold(first, |longest, wait| wait.map(|wait| longest.max(wait)))
    }

    /// The time of the decision by the clock of the store that judged, to the microsecond; `None` if no store judged.
    pub fn time(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_micros(self.time_us()?))
    }

    /// The same in microseconds since the Unix epoch.
    pub(crate) fn time_us(&self) -> Option<u64> {
        matches!(self.source, Source::Store | Source::DenyCache | Source::Local).then_some(self.time_us)
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allowed, source, time_us, policies: _ } = self;
        f.debug_struct("Decision")
            .field("allowed", allowed)
            .field("source", source)
            .field("time_us", time_us)
            .field("policies", &self.policies())
            .finish()
    }
}
