//! Changes of a count by hand, as stores see them.

use std::time::Duration;

use crate::{error::ConfigError, policy::Policy};

/// A change of the count of one key under one policy that no request makes: an operator does, or the service's code.
///
/// A store gets it with [`Store::change_count`](crate::store::Store::change_count).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CountChange {
    /// Bans the key for this time, which is 1 µs to [`Policy::MAX_WINDOW`]. A later ban replaces an earlier one.
    Ban(Duration),
    /// Ends a ban of the key.
    Unban,
    /// Charges this number of units, at least 1, whether or not they fit. More than [`Policy::MAX_LIMIT`] count as that
    /// many.
    Record(u64),
    /// Gives back up to this number of units, at least 1.
    Credit(u64),
}

impl CountChange {
    /// Whether a store can make the change of a count under `policy`.
    pub(crate) fn validate(self, policy: &Policy) -> Result<(), ConfigError> {
        let error = |message: &str| Err(ConfigError::of_policy(policy.name(), message));
        match self {
            Self::Ban(duration) if !(Duration::from_micros(1)..=Policy::MAX_WINDOW).contains(&duration) => {
                error(&format!("a ban for {duration:?} is out of range; use 1 µs to 366 days"))
            }
            Self::Record(0) | Self::Credit(0) => error("0 units change nothing; charge or give back 1 or more"),
            Self::Record(_) | Self::Credit(_) if policy.is_concurrent() => {
                Err(ConfigError::concurrency_needs_hold(policy.name()))
            }
            _ => Ok(()),
        }
    }
}
