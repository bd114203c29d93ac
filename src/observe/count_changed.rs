//! The event of a change by hand.

use std::{fmt, time::Duration};

use crate::{error::Error, key::Key, observe::fingerprint::Fingerprint, policy::Policy, store::CountChange};

/// The end of a [`Limiter::ban`](crate::Limiter::ban), [`unban`](crate::Limiter::unban),
/// [`record`](crate::Limiter::record) or [`credit`](crate::Limiter::credit): the count was changed, or the store
/// failed. See [`Observer::on_count_changed`](super::Observer::on_count_changed).
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct CountChanged<'a> {
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
    key: &'a Key,
}

impl<'a> CountChanged<'a> {
    pub(crate) fn new(
        key: &'a Key,
        policy: &'a Policy,
        change: CountChange,
        result: &'a Result<u32, Error>,
        elapsed: Duration,
    ) -> Self {
        Self { policy, change, changed: result.as_ref().ok().copied(), error: result.as_ref().err(), elapsed, key }
    }

    /// The fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.key)
    }
}

impl fmt::Debug for CountChanged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, change, changed, error, elapsed, key: _ } = self;
        f.debug_struct("CountChanged")
            .field("policy", &policy.name())
            .field("change", change)
            .field("changed", changed)
            .field("error", error)
            .field("elapsed", elapsed)
            .field("fingerprint", &self.fingerprint())
            .finish()
    }
}
