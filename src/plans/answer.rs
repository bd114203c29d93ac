//! How a look-up ended, and whether its plan can be used.

use super::{plan::Form, source::Found};
use crate::{
    check::Check,
    error::ConfigError,
    observe::PlanOutcome,
    policy::{Policies, validate_alternatives},
};

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
