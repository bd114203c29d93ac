//! Which policies have holds.

use std::time::Duration;

use crate::{
    error::ConfigError,
    policy::{
        holds::{Holds, Unsettled},
        limit::Policy,
    },
};

impl Policy {
    /// Lets the policy hold units for costs that are known later, see [`Limiter::hold`](crate::Limiter::hold).
    ///
    /// Checks of such a policy count open holds as spent. A policy without holds does not look for them, also where it
    /// shares its counts with one that has holds. Holds exclude [bans](Self::ban_after), [shards](Self::with_shards)
    /// and [counted denials](Self::with_denials_counted). Defaults to no holds.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the policy has a ban or shards or counts denials, or if the time-to-live, the typical
    /// duration or the longest age is shorter than 1 µs or longer than [`MAX_WINDOW`](Self::MAX_WINDOW).
    ///
    /// # Examples
    ///
    /// See [`Holds`].
    pub fn with_holds(self, holds: Holds) -> Result<Self, ConfigError> {
        let longest = holds.longest().map(|longest| ("with_longest", longest));
        for (setting, duration) in
            [("with_ttl", holds.ttl()), ("with_typical", holds.typical())].into_iter().chain(longest)
        {
            if !(Duration::from_micros(1)..=Self::MAX_WINDOW).contains(&duration) {
                let message =
                    format!("`{setting}` of its holds is {duration:?}, which is out of range; use 1 µs to 366 days");
                return Err(ConfigError::of_policy(self.name(), message));
            }
        }
        let excludes = [
            (self.ban().is_some(), "ban_after"),
            (self.is_sharded(), "with_shards"),
            (self.denials_counted(), "with_denials_counted"),
        ];
        if let Some((_, setting)) = excludes.into_iter().find(|(is_set, _)| *is_set) {
            return Err(self.excludes_holds(setting));
        }
        if self.lease().is_some() && holds.unsettled() == Unsettled::Release {
            return Err(self.excludes_holds("Unsettled::Release"));
        }
        let unsettled = if self.is_concurrent() { Unsettled::Release } else { holds.unsettled() };
        Ok(self.change(|d| d.holds = Some(holds.with_unsettled(unsettled))))
    }

    /// How the policy treats holds, set by [`with_holds`](Self::with_holds). `None` without holds.
    #[inline]
    pub fn holds(&self) -> Option<&Holds> {
        self.definition().holds.as_ref()
    }

    /// The error of a setting that a policy with holds, or with a lease, cannot have.
    pub(super) fn excludes_holds(&self, setting: &'static str) -> ConfigError {
        if self.lease().is_some() {
            return ConfigError::excludes_lease(self.name(), setting);
        }
        let message = format!(
            "`{setting}` and holds exclude each other; leave out `{setting}`, or what makes the holds: `with_holds` or \
             `Policy::concurrent`"
        );
        ConfigError::of_policy(self.name(), message)
    }
}
