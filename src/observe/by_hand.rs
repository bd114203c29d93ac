//! The events of resets and of counts that are changed by hand.

use std::time::Duration;

use crate::{
    error::Error,
    key::Key,
    observe::{Fingerprint, ObservedKey},
    policy::Policy,
    store::CountChange,
};

/// The end of a [`Limiter::reset`](crate::Limiter::reset): the key was reset, or the store failed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResetEvent<'a> {
    /// The policy whose count was reset.
    pub policy: &'a Policy,
    /// Whether there was anything to forget; `None` if the store failed.
    pub found: Option<bool>,
    /// The error, if the store failed. Its `Display` is for operators and contains no key.
    pub error: Option<&'a Error>,
    /// How long the reset took.
    pub elapsed: Duration,
    key: ObservedKey<'a>,
}

impl<'a> ResetEvent<'a> {
    pub(crate) fn new(key: &'a Key, policy: &'a Policy, result: &'a Result<bool, Error>, elapsed: Duration) -> Self {
        let (found, error) = (result.as_ref().ok().copied(), result.as_ref().err());
        Self { policy, found, error, elapsed, key: ObservedKey(key) }
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key.0)
    }
}

/// The end of a [`Limiter::ban`](crate::Limiter::ban), [`unban`](crate::Limiter::unban),
/// [`record`](crate::Limiter::record) or [`credit`](crate::Limiter::credit): the count was changed, or the store
/// failed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CountChangeEvent<'a> {
    /// The policy whose count was changed.
    pub policy: &'a Policy,
    /// The change.
    pub change: CountChange,
    /// The units that were charged or given back; for `Unban`, 1 if a ban has ended. `None` if the store failed.
    pub changed: Option<u32>,
    /// The error, if the store failed. Its `Display` is for operators and contains no key.
    pub error: Option<&'a Error>,
    /// How long the change took.
    pub elapsed: Duration,
    key: ObservedKey<'a>,
}

impl<'a> CountChangeEvent<'a> {
    pub(crate) fn new(
        key: &'a Key,
        policy: &'a Policy,
        change: CountChange,
        result: &'a Result<u32, Error>,
        elapsed: Duration,
    ) -> Self {
        let (changed, error) = (result.as_ref().ok().copied(), result.as_ref().err());
        Self { policy, change, changed, error, elapsed, key: ObservedKey(key) }
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key.0)
    }
}
