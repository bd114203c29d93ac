//! What an observer is told beside decisions.

use std::{fmt, time::Duration};

use super::{Fingerprint, ObservedCharge};
use crate::{
    check::Check,
    error::Error,
    key::{Key, KeyError},
    policy::Policy,
    rejection::Reason,
};

/// A request was refused before it became a check. See [`Observer::on_refusal`](super::Observer::on_refusal).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refused<'a> {
    /// Why: no usable key, a cost above the limit, or a layer that cannot work.
    pub reason: &'a Reason,
}

impl<'a> Refused<'a> {
    pub(crate) fn new(reason: &'a Reason) -> Self {
        Self { reason }
    }

    /// One word for the reason, as metrics and logs have it.
    pub fn cause(&self) -> &'static str {
        match self.reason {
            Reason::CostAboveLimit { .. } => "cost_above_limit",
            Reason::Key(KeyError::MissingExtension(_)) | Reason::Misconfigured(_) => "misconfigured",
            Reason::Key(error) if error.is_missing() => "missing_key",
            Reason::Key(_) => "unusable_key",
            // These come of a check, and are told as its decision.
            Reason::QuotaExceeded(_) => "denied",
            Reason::StoreUnavailable => "closed",
        }
    }

    /// Whether the service is set up wrongly, so that no client can do better.
    pub fn is_misconfiguration(&self) -> bool {
        matches!(
            self.reason,
            Reason::Misconfigured(_) | Reason::Key(KeyError::MissingExtension(_) | KeyError::NoPeerAddress)
        )
    }
}

/// A check that was given up before its verdict. See [`Observer::on_abandoned`](super::Observer::on_abandoned).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Abandoned<'a> {
    /// How long it had waited.
    pub elapsed: Duration,
    check: &'a Check,
}

impl<'a> Abandoned<'a> {
    pub(super) fn new(check: &'a Check, elapsed: Duration) -> Self {
        Self { elapsed, check }
    }

    /// What the check owed. Whether it was charged is not known.
    pub fn charges(&self) -> impl Iterator<Item = ObservedCharge<'a>> + use<'a> {
        self.check.charges().iter().map(|charge| ObservedCharge::new(charge, false))
    }
}

/// A key was reset, or was meant to be. See [`Observer::on_reset`](super::Observer::on_reset).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Reset<'a> {
    /// Under which policy.
    pub policy: &'a Policy,
    /// Whether there was anything to forget; `None` if the store failed.
    pub found: Option<bool>,
    /// Why it was not, if the store failed; what its `Display` says is for operators and holds no key.
    pub error: Option<&'a Error>,
    /// How long it took.
    pub elapsed: Duration,
    key: &'a Key,
}

impl<'a> Reset<'a> {
    pub(crate) fn new(key: &'a Key, policy: &'a Policy, result: &'a Result<bool, Error>, elapsed: Duration) -> Self {
        Self { policy, found: result.as_ref().ok().copied(), error: result.as_ref().err(), elapsed, key }
    }

    /// What tells the key apart from others.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key)
    }
}

/// A [`MemoryStore`](crate::MemoryStore) that is full has dropped a live count. See
/// [`Observer::on_evicted`](super::Observer::on_evicted).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Evicted<'a> {
    /// Under which policy it was counted. A count of denials has the policy's name with `(ban)` behind it.
    pub policy: &'a Policy,
    /// How many units it had spent, which its key may now spend once more.
    pub spent: u32,
}

impl<'a> Evicted<'a> {
    pub(crate) fn new(policy: &'a Policy, spent: u32) -> Self {
        Self { policy, spent }
    }
}

/// The reason in words. It names headers and policies, and shows no key.
impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::CostAboveLimit { policy, cost, limit } => {
                write!(
                    f,
                    "a cost of {cost} can never pass policy {policy:?}, which lets at most {limit} through at once"
                )
            }
            Reason::Key(error) => error.fmt(f),
            Reason::Misconfigured(error) => error.fmt(f),
            Reason::QuotaExceeded(_) | Reason::StoreUnavailable => f.write_str(self.cause()),
        }
    }
}

impl fmt::Debug for Abandoned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, check: _ } = self;
        f.debug_struct("Abandoned")
            .field("elapsed", elapsed)
            .field("charges", &self.charges().collect::<Vec<_>>())
            .finish()
    }
}

impl fmt::Debug for Reset<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, found, error, elapsed, key: _ } = self;
        f.debug_struct("Reset")
            .field("policy", &policy.name())
            .field("found", found)
            .field("error", error)
            .field("elapsed", elapsed)
            .field("fingerprint", &self.fingerprint())
            .finish()
    }
}
