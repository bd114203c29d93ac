//! What is known about the plan of a key, and until when it may be used: how its look-up ended.

use std::time::Duration;

use super::source::{Form, Found};
use crate::observe::{PlanFallbackCause, PlanOutcome};
use crate::policy::{Policies, validate_alternatives};
use crate::{check::Check, clock::micros, error::ConfigError};

/// How long answers are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    /// Time until a plan is looked up again.
    pub(super) ttl: Duration,
    /// Time after the TTL in which an old plan may be used.
    pub(super) stale: Duration,
    /// Time after a failed look-up until the next one; `None` for the TTL.
    pub(super) failure_ttl: Option<Duration>,
}

impl Lifetimes {
    pub(super) fn failure_ttl(&self) -> Duration {
        self.failure_ttl.unwrap_or(self.ttl)
    }
}

/// The latest answer about one key.
#[derive(Clone)]
pub(super) struct Entry {
    /// The latest plan, and when it becomes too old to be used; `None` before the first answer.
    plan: Option<(Form, u64)>,
    look_up_at_us: u64,
    has_failed: bool,
}

/// What a request gets at an instant.
pub(super) struct Standing {
    /// The plan that applies; `None` for the default plan.
    pub(super) plan: Option<Form>,
    /// Why an old plan or the default plan applies; `None` for a current plan.
    pub(super) cause: Option<PlanFallbackCause>,
    pub(super) is_look_up_due: bool,
}

impl Standing {
    /// The standing of a key about which nothing is known.
    pub(super) const UNKNOWN: Self =
        Self { plan: None, cause: Some(PlanFallbackCause::Unanswered), is_look_up_due: true };
}

impl Entry {
    /// A look-up is due, and no plan is there.
    pub(super) const FORGOTTEN: Self = Self { plan: None, look_up_at_us: 0, has_failed: false };

    /// The source has answered with `plan` at `now_us`.
    pub(super) fn found(plan: Form, now_us: u64, lifetimes: &Lifetimes) -> Self {
        let look_up_at_us = now_us.saturating_add(micros(lifetimes.ttl));
        let use_until_us = look_up_at_us.saturating_add(micros(lifetimes.stale));
        Self { plan: Some((plan, use_until_us)), look_up_at_us, has_failed: false }
    }

    /// A look-up has failed at `now_us`. The plan of the `last` entry stays, as long as that entry allows.
    pub(super) fn failed(last: Option<Self>, now_us: u64, lifetimes: &Lifetimes) -> Self {
        let look_up_at_us = now_us.saturating_add(micros(lifetimes.failure_ttl()));
        Self { plan: last.and_then(|last| last.plan), look_up_at_us, has_failed: true }
    }

    pub(super) fn standing(self, now_us: u64) -> Standing {
        let is_look_up_due = now_us >= self.look_up_at_us;
        let cause = match self.has_failed {
            true => Some(PlanFallbackCause::Failed),
            false if is_look_up_due => Some(PlanFallbackCause::Unanswered),
            false => None,
        };
        let plan = self.plan.filter(|&(_, use_until_us)| now_us < use_until_us);
        Standing { plan: plan.map(|(plan, _)| plan), cause, is_look_up_due }
    }
}

/// How a look-up ended.
pub(super) enum Answer {
    Source(Found),
    Cancelled,
    Panicked,
    TimedOut,
}

impl Answer {
    /// The outcome, the plan if the source has answered, and what is wrong otherwise.
    pub(super) fn judge(self, default: &Form) -> (PlanOutcome, Option<Form>, Option<String>) {
        match self {
            Self::Source(Ok(None)) => (PlanOutcome::NoPlan, Some(default.clone()), None),
            Self::Source(Ok(Some(Form::Policies(plan)))) => match usable(plan) {
                Ok(plan) => (PlanOutcome::Found, Some(Form::Policies(plan)), None),
                Err(error) => (PlanOutcome::Invalid, None, Some(error.to_string())),
            },
            // Plans of limits have a default plan with a name.
            #[cfg(feature = "serde")]
            Self::Source(Ok(Some(plan @ Form::Named(_)))) => match default {
                Form::Named(_) => (PlanOutcome::Found, Some(plan), None),
                Form::Policies(_) => (PlanOutcome::Invalid, None, Some(without_limits().to_string())),
            },
            Self::Source(Err(error)) => (PlanOutcome::Failed, None, Some(error)),
            Self::Cancelled => (PlanOutcome::Cancelled, None, None),
            Self::Panicked => (PlanOutcome::Panicked, None, None),
            Self::TimedOut => (PlanOutcome::TimedOut, None, None),
        }
    }
}

/// The error of a plan with a name, where no limits have policies with names.
#[cfg(feature = "serde")]
pub(super) fn without_limits() -> ConfigError {
    ConfigError::new(
        "the plan is the name of a policy, and these plans have no limits to find it in; create them with \
         `Plans::of_limits`, or return the policy",
    )
}

/// Returns the policies of a plan if a request can be charged under them.
///
/// # Errors
///
/// No policy, a policy with a mistake, two policies of one name, or more policies than a check has charges.
pub(super) fn usable(plan: Policies) -> Result<Policies, ConfigError> {
    if plan.is_unlimited {
        return Ok(plan);
    }
    if plan.is_empty() {
        return Err(ConfigError::no_policy());
    }
    if plan.len() > Check::MAX_CHARGES {
        return Err(ConfigError::too_many_charges(Check::MAX_CHARGES));
    }
    for (index, policy) in plan.iter().enumerate() {
        policy.validate()?;
        if plan[..index].iter().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
            return Err(ConfigError::duplicate_policy(policy.name()));
        }
    }
    if plan.are_alternatives {
        validate_alternatives(plan.iter())?;
    }
    Ok(plan)
}
