//! The events of resets and of counts that are changed by hand.

use std::{fmt, time::Duration};

use crate::error::{Error, OneLine};
use crate::{key::Key, observe::ObservedKey, policy::Policy, store::CountChange};

/// The end of a [`Limiter::reset`](crate::Limiter::reset): the key was reset, or the store failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResetEvent<'a> {
    /// The policy whose count was reset.
    pub(super) policy: &'a Policy,
    pub(super) key: ObservedKey<'a>,
    /// Whether there was anything to forget, or the error of the store.
    pub(super) result: Result<bool, &'a Error>,
    /// How long the reset took.
    pub(super) elapsed: Duration,
}

impl<'a> ResetEvent<'a> {
    pub(crate) fn new(key: &'a Key, policy: &'a Policy, result: &'a Result<bool, Error>, elapsed: Duration) -> Self {
        Self { policy, key: ObservedKey(key), result: result.as_ref().copied(), elapsed }
    }

    pub(super) fn outcome(&self) -> &'static str {
        if self.result.is_ok() { "ok" } else { "error" }
    }
}

impl fmt::Display for ResetEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, policy, elapsed) = (self.key, self.policy.name(), self.elapsed);
        match self.result {
            Ok(found) => write!(f, "A key was reset in {elapsed:?}: policy={policy:?} key={key} found={found}"),
            Err(error) => write!(f, "A key could not be reset: policy={policy:?} key={key} error={}", OneLine(error)),
        }
    }
}

/// The end of a [`Limiter::ban`](crate::Limiter::ban), [`unban`](crate::Limiter::unban),
/// [`record`](crate::Limiter::record) or [`credit`](crate::Limiter::credit): the count was changed, or the store
/// failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountChangeEvent<'a> {
    /// The policy whose count was changed.
    pub(super) policy: &'a Policy,
    pub(super) key: ObservedKey<'a>,
    /// The change.
    pub(super) change: CountChange,
    /// The units that were charged or given back; for `Unban`, 1 if a ban has ended. Otherwise the error of the store.
    pub(super) result: Result<u64, &'a Error>,
    /// How long the change took.
    pub(super) elapsed: Duration,
}

impl<'a> CountChangeEvent<'a> {
    pub(crate) fn new(
        key: &'a Key,
        policy: &'a Policy,
        change: CountChange,
        result: &'a Result<u64, Error>,
        elapsed: Duration,
    ) -> Self {
        Self { policy, key: ObservedKey(key), change, result: result.as_ref().copied(), elapsed }
    }

    pub(super) fn outcome(&self) -> &'static str {
        if self.result.is_ok() { "ok" } else { "error" }
    }
}

impl fmt::Display for CountChangeEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.result {
            Ok(_) => write!(f, "A count was changed by hand in {:?}", self.elapsed)?,
            Err(_) => f.write_str("A count could not be changed by hand")?,
        }
        write!(f, ": policy={:?} key={} change={:?}", self.policy.name(), self.key, self.change)?;
        match self.result {
            Ok(changed) => write!(f, " changed={changed}"),
            Err(error) => write!(f, " error={}", OneLine(error)),
        }
    }
}
