//! Events of plans: look-ups, and requests without a current plan.

use std::{fmt, time::Duration};

use crate::error::OneLine;

/// A look-up of a plan ended.
///
/// Its `Display` is for operators. It contains the error text of the `PlanSource`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanLookup<'a> {
    pub(super) outcome: PlanOutcome,
    /// Time from the start of the look-up to its end.
    pub(super) elapsed: Duration,
    /// The text of the source's error, or what is wrong with its answer.
    pub(super) error: Option<&'a str>,
}

/// How a look-up of a plan ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(not(feature = "plans"), expect(dead_code, reason = "made by plans alone"))]
pub(crate) enum PlanOutcome {
    /// The runtime of the look-up ended first. The next request of the key starts another look-up.
    Cancelled,
    /// The source returned an error.
    Failed,
    /// The source returned a plan.
    Found,
    /// The source returned a plan that cannot be used: no policy, two policies of one name, or too many policies.
    Invalid,
    /// The key has no plan of its own, so the default plan applies.
    NoPlan,
    /// The source panicked.
    Panicked,
    /// The source did not answer in time.
    TimedOut,
}

impl PlanOutcome {
    /// The outcome in lower case.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Found => "found",
            Self::Invalid => "invalid",
            Self::NoPlan => "no_plan",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
        }
    }

    /// Whether the source has answered with a plan, or that there is none.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Self::Found | Self::NoPlan)
    }
}

#[cfg(feature = "plans")]
impl<'a> PlanLookup<'a> {
    pub(crate) fn new(outcome: PlanOutcome, elapsed: Duration, error: Option<&'a str>) -> Self {
        Self { outcome, elapsed, error }
    }
}

impl fmt::Display for PlanLookup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = OneLine(self.error.unwrap_or("no reason given"));
        match self.outcome {
            PlanOutcome::Found => return write!(f, "A plan was looked up."),
            PlanOutcome::NoPlan => return write!(f, "A plan was looked up, and the key has none of its own."),
            PlanOutcome::Cancelled => write!(
                f,
                "A plan could not be looked up: the runtime that looked it up has ended; pass the handle of a runtime \
                 that stays to `Plans::with_runtime`."
            ),
            PlanOutcome::Failed => write!(f, "A plan could not be looked up: {error}."),
            PlanOutcome::Invalid => {
                write!(f, "A plan could not be looked up: the source's answer cannot be used: {error}.")
            }
            PlanOutcome::Panicked => write!(f, "A plan could not be looked up: the source of the plans panicked."),
            PlanOutcome::TimedOut => write!(
                f,
                "A plan could not be looked up: the source of the plans has not answered within {:?}; \
                 `Plans::with_timeout` gives it more time.",
                self.elapsed
            ),
        }?;
        f.write_str(" The key keeps its last plan until that is too old, and then gets the default plan.")
    }
}

/// A request without a current plan: an old plan or the default plan applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PlanFallback {
    pub(super) cause: PlanFallbackCause,
    /// Whether the key's last plan applied; otherwise the default plan applied.
    pub(super) is_stale: bool,
}

/// Why a request has no current plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(not(feature = "plans"), expect(dead_code, reason = "made by plans alone"))]
pub(crate) enum PlanFallbackCause {
    /// As many look-ups as allowed were on their way, so none started.
    Busy,
    /// The last look-up of the key failed.
    Failed,
    /// The request did not run in a tokio runtime, so no look-up started.
    NoRuntime,
    /// The look-up is on its way.
    Unanswered,
}

impl PlanFallbackCause {
    /// The cause in lower case.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Failed => "failed",
            Self::NoRuntime => "no_runtime",
            Self::Unanswered => "unanswered",
        }
    }
}

impl PlanFallback {
    #[cfg(feature = "plans")]
    pub(crate) fn new(cause: PlanFallbackCause, is_stale: bool) -> Self {
        Self { cause, is_stale }
    }

    /// What to do, if an operator can do something.
    pub(super) fn advice(&self) -> Option<&'static str> {
        match self.cause {
            PlanFallbackCause::Busy => Some(
                "Plans are not looked up: as many look-ups as allowed are on their way, so keys keep their last plan \
                 or get the default plan. Make the source faster, raise `Plans::with_max_lookups`, or check that \
                 clients cannot make keys up.",
            ),
            PlanFallbackCause::NoRuntime => Some(
                "Plans are not looked up: the request does not run in a tokio runtime, so keys get the default plan. \
                 Pass the handle of a runtime to `Plans::with_runtime`.",
            ),
            PlanFallbackCause::Failed | PlanFallbackCause::Unanswered => None,
        }
    }
}

/// The message about a request without a current plan.
impl fmt::Display for PlanFallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = if self.is_stale { "the last plan of its key" } else { "the default plan" };
        let cause = match self.cause {
            PlanFallbackCause::Busy => "as many look-ups as allowed are on their way",
            PlanFallbackCause::Failed => "the last look-up of its key failed",
            PlanFallbackCause::NoRuntime => "it does not run in a tokio runtime",
            PlanFallbackCause::Unanswered => "the look-up is on its way",
        };
        write!(f, "A request has no current plan, so {plan} applies: {cause}.")
    }
}
