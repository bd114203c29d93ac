//! What a verdict says to a caller. Computed here and not by the crate, so that a mistake of the crate hides no mistake
//! of the store.

use std::time::Duration;

use tollgate::store::{Charge, Outcome, Verdict};
use tollgate::{Check, Policy};

/// The decision on a check: the verdict with the policies and costs of its charges.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    allowed: bool,
    time_us: u64,
    policies: Vec<Standing>,
}

/// Where one policy stands after a check.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) policy: Policy,
    pub(super) cost: u64,
    /// Whether the cost does not fit, under an enforced policy.
    pub(super) violated: bool,
    /// Whether the cost does not fit, under a shadow policy.
    pub(super) would_deny: bool,
    pub(super) available: u64,
    pub(super) retry_after: Option<Duration>,
    pub(super) next: Duration,
    pub(super) reset: Duration,
    pub(super) ban: Option<Duration>,
}

impl Decision {
    /// The decision of a verdict with one outcome for each charge.
    pub(super) fn new(check: &Check, verdict: &Verdict) -> Self {
        let judged = check.charges().iter().zip(&verdict.outcomes);
        let policies = judged.map(|(charge, outcome)| Standing::new(charge, outcome)).collect();
        Self { allowed: verdict.allowed, time_us: verdict.time_us, policies }
    }

    /// The decision on a cost of 1, from that on a cost of 0: a peek sends the latter.
    pub(super) fn of_peek(mut self) -> Self {
        for standing in &mut self.policies {
            let is_spent = standing.available == 0;
            standing.violated = is_spent && !standing.policy.is_shadow();
            standing.would_deny = is_spent && standing.policy.is_shadow();
            standing.retry_after = is_spent.then_some(standing.next);
        }
        self.allowed = self.violated().count() == 0;
        self
    }

    pub(super) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// The time of the verdict, in microseconds since the Unix epoch.
    pub(super) fn time_us(&self) -> u64 {
        self.time_us
    }

    pub(super) fn policies(&self) -> &[Standing] {
        &self.policies
    }

    /// The enforced policies under which the cost does not fit.
    pub(super) fn violated(&self) -> impl Iterator<Item = &Standing> {
        self.policies.iter().filter(|standing| standing.violated)
    }

    /// Whether the cost does not fit under a shadow policy.
    pub(super) fn would_deny(&self) -> bool {
        self.policies.iter().any(|standing| standing.would_deny)
    }

    /// The largest cost that passes now; `None` under shadow policies alone.
    pub(super) fn available(&self) -> Option<u64> {
        let enforced = self.policies.iter().filter(|standing| !standing.policy.is_shadow());
        enforced.map(|standing| standing.available).min()
    }

    /// The longest wait of the violated policies; `None` if one of them never admits the cost.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let waits: Option<Vec<Duration>> = self.violated().map(|standing| standing.retry_after).collect();
        waits?.into_iter().max()
    }
}

impl Standing {
    fn new(charge: &Charge, outcome: &Outcome) -> Self {
        let &Outcome { fits, available, retry_after_us, next_us, reset_us, ban_us } = outcome;
        let is_shadow = charge.policy.is_shadow();
        Self {
            policy: charge.policy.clone(),
            cost: charge.cost,
            violated: !fits && !is_shadow,
            would_deny: !fits && is_shadow,
            available,
            retry_after: retry_after_us.map(Duration::from_micros),
            next: Duration::from_micros(next_us),
            reset: Duration::from_micros(reset_us),
            ban: (ban_us > 0).then(|| Duration::from_micros(ban_us)),
        }
    }

    /// Whether no wait helps.
    pub(super) fn never_fits(&self) -> bool {
        self.cost > self.policy.capacity()
    }
}
