//! Which policies have holds.

use std::time::Duration;

use crate::policy::{holds::HoldSettings, limit::Policy};

impl Policy {
    /// Lets the policy hold units for costs that are known later, see [`Limiter::hold`](crate::Limiter::hold).
    ///
    /// Checks of such a policy count open holds as spent. A policy without holds does not look for them, also where it
    /// shares its counts with one that has holds. Holds exclude [shards](Self::with_shards) and
    /// [counted denials](Self::with_denials_counted). Defaults to no holds.
    ///
    /// It is a [mistake](Self#mistakes) if the policy has shards or counts denials, or if the time-to-live, the typical
    /// duration or the longest age is shorter than 1 µs or longer than [`MAX_WINDOW`](Self::MAX_WINDOW).
    ///
    /// # Examples
    ///
    /// See [`HoldSettings`].
    #[must_use]
    pub fn with_holds(self, holds: HoldSettings) -> Self {
        let longest = holds.longest().map(|longest| ("with_longest", longest));
        for (setting, duration) in
            [("with_ttl", holds.ttl()), ("with_typical_duration", holds.typical_duration())].into_iter().chain(longest)
        {
            if !(Duration::from_micros(1)..=Self::MAX_WINDOW).contains(&duration) {
                return self.mistaken(format_args!(
                    "`{setting}` of its holds is {duration:?}, which is out of range; use 1 µs to 366 days"
                ));
            }
        }
        let released = self.is_concurrent() || holds.unsettled_released();
        self.change(|d| d.holds = Some(holds.with_unsettled_released(released)))
    }

    /// How the policy treats holds, set by [`with_holds`](Self::with_holds). `None` without holds.
    #[inline]
    pub fn holds(&self) -> Option<&HoldSettings> {
        self.definition().holds.as_ref()
    }
}
