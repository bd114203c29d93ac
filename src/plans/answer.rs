//! How a look-up ended, and whether its plan can be used.

use super::source::Found;
use crate::{check::Check, error::ConfigError, observe::PlanOutcome, policy::Policies};

/// How a look-up ended.
pub(super) enum Answer {
    Source(Found),
    Cancelled,
    Panicked,
    TimedOut,
}

impl Answer {
    /// The outcome, the plan if the source has answered, and what is wrong otherwise.
    pub(super) fn judge(self, default: &Policies) -> (PlanOutcome, Option<Policies>, Option<String>) {
        match self {
            Self::Source(Ok(None)) => (PlanOutcome::NoPlan, Some(default.clone()), None),
            Self::Source(Ok(Some(plan))) => match usable(plan) {
                Ok(plan) => (PlanOutcome::Found, Some(plan), None),
                Err(error) => (PlanOutcome::Invalid, None, Some(error.to_string())),
            },
            Self::Source(Err(error)) => (PlanOutcome::Failed, None, Some(error)),
            Self::Cancelled => (PlanOutcome::Cancelled, None, None),
            Self::Panicked => (PlanOutcome::Panicked, None, None),
            Self::TimedOut => (PlanOutcome::TimedOut, None, None),
        }
    }
}

/// Returns the policies of a plan if a request can be charged under them.
///
/// # Errors
///
/// No policy, two policies of one name, or more policies than a check has charges.
pub(super) fn usable(plan: Policies) -> Result<Policies, ConfigError> {
    if plan.0.is_empty() {
        return Err(ConfigError::NoPolicy);
    }
    if plan.0.len() > Check::MAX_CHARGES {
        return Err(ConfigError::TooManyCharges { most: Check::MAX_CHARGES });
    }
    for (index, policy) in plan.0.iter().enumerate() {
        if plan.0[..index].iter().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
            return Err(ConfigError::DuplicatePolicy { policy: policy.name().to_owned() });
        }
    }
    Ok(plan)
}
