//! Bans: after too many denials, a key is denied outright for a while, and for longer with each further ban.

use std::time::Duration;

use crate::policy::{ban_growth::BanGrowth, definition::Definition, limit::Policy, micros_up};

impl Definition {
    /// The growth of the bans; `None` if all of them are equally long.
    pub(super) fn ban_growth(&self) -> Option<BanGrowth> {
        let (_, first_us) = self.ban?;
        let longest_us = self.longest_ban_us.filter(|longest_us| *longest_us > first_us)?;
        // The counts of a concurrency limit have a window that no user has set.
        let window_us = if self.is_concurrent { 0 } else { self.window_us };
        Some(BanGrowth { longest_us, least_quiet_us: window_us.max(first_us) })
    }
}

impl Policy {
    /// Bans a key that was denied `denials` times within `duration`, for `duration`. Until the ban ends the key is
    /// denied, whatever is available, by every instance that shares the store.
    ///
    /// The ban begins with the last of these denials, whose Retry-After is already the end of the ban. Requests during
    /// the ban do not extend it and are not counted, also under a policy that counts denials; with Redis, most of
    /// them are denied from memory (see `RedisStoreBuilder::deny_cache`). Denials before the ban all reach the store,
    /// because it has to count them. A peek, a cost of 0, a cost that could never pass, and a denial because of another
    /// policy do not count as denials. A layer refuses every request of a banned key, also those that cost nothing; a
    /// check outside of a layer with a cost of 0 passes. [`Limiter::unban`](crate::Limiter::unban) lifts a ban, and
    /// [`Limiter::ban`](crate::Limiter::ban) bans a key without denials.
    ///
    /// Choose `denials` with room for clients that follow Retry-After: under full load they may be denied once for
    /// every unit that comes back. The ban keeps one more key in the store, with one record per denial. A changed
    /// number of denials applies at once to the denials counted so far; a changed duration starts a fresh count. While
    /// the store gives no verdict, only the local fallback bans, and counts only its own denials. Only
    /// [`MemoryStore`](crate::MemoryStore) and `RedisStore` support bans. Defaults to no ban, because a client that
    /// follows Retry-After should pass.
    ///
    /// Under a policy with [holds](Self::with_holds), a hold that does not fit is a denial as well, also while only
    /// other open holds are in its way. So is a settlement with more units than were held and than fit; its units are
    /// charged all the same. During a ban no hold is made, and open holds are settled as usual.
    ///
    /// It is a [mistake](Self#mistakes) if `denials` is 0, if the duration is shorter than 1 µs or longer than
    /// [`MAX_WINDOW`](Self::MAX_WINDOW), or if the policy has [shards](Self::with_shards) or a
    /// [lease](Self::with_lease).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let login =
    ///     Policy::per_minute("login", 5)?.ban_after(10, Duration::from_secs(600));
    /// # let _ = login.validated()?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "block")]
    #[doc(alias = "penalty")]
    #[must_use]
    pub fn ban_after(self, denials: u32, duration: Duration) -> Self {
        if denials == 0 || !(Duration::from_micros(1)..=Self::MAX_WINDOW).contains(&duration) {
            return self.mistaken(format_args!(
                "a ban after {denials} denials for {duration:?} is out of range; use at least 1 denial and 1 µs to 366 \
                 days"
            ));
        }
        self.change(|d| d.ban = Some((denials, micros_up(duration))))
    }

    /// Lets each further ban of a key be twice as long as the last one, up to `longest`: after
    /// `ban_after(5, minute).growing_to(day)` a minute, two minutes, four minutes, .. a day. The denials that lead to a
    /// ban count within the first duration, however long the last ban was.
    ///
    /// A key that behaves begins again with the first duration: when it has been free of bans for as long as its last
    /// ban lasted, and at least for the window of the policy and for the first duration.
    /// [`Limiter::unban`](crate::Limiter::unban) and [`Limiter::reset`](crate::Limiter::reset) forget the last ban as
    /// well. A ban by hand does not count as one. A changed `longest` applies from the next ban on.
    ///
    /// The length of the last ban is in one more key in the store, which is read and written when a ban begins, and
    /// never else. A check that a ban denies counts no rejection under any of its policies, as during a ban
    /// [by hand](crate::Limiter::ban). While a slot of a cluster moves between two masters, a ban has the first
    /// duration. If the clock of the store is set back during a ban, the ban may last for up to twice its length.
    ///
    /// It is a [mistake](Self#mistakes) if the policy has no [`ban_after`](Self::ban_after), or if `longest` is shorter
    /// than its duration or longer than [`MAX_WINDOW`](Self::MAX_WINDOW).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let login = Policy::per_minute("login", 5)?
    ///     .ban_after(10, Duration::from_secs(60))
    ///     .growing_to(Duration::from_secs(86_400));
    /// # let _ = login.validated()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn growing_to(self, longest: Duration) -> Self {
        if !(Duration::from_micros(1)..=Self::MAX_WINDOW).contains(&longest) {
            return self.mistaken(format_args!(
                "a longest ban of {longest:?} is out of range; use the duration of the first one to 366 days"
            ));
        }
        self.change(|d| d.longest_ban_us = Some(micros_up(longest)))
    }

    /// This policy without its ban: the same limit on the same counts.
    pub(crate) fn without_ban(&self) -> Self {
        match self.ban() {
            Some(_) => self.clone().change(|d| (d.ban, d.longest_ban_us) = (None, None)),
            None => self.clone(),
        }
    }

    /// How bans grow, of the policy that counts denials. `None` if all of them are equally long.
    pub(crate) fn ban_growth(&self) -> Option<BanGrowth> {
        self.definition().growth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store remembers the last ban of a key only if the next one may be longer.
    #[test]
    fn bans_grow_only_if_the_longest_is_longer_than_the_first() {
        let (minute, micro) = (Duration::from_secs(60), Duration::from_micros(1));
        for (longest, grows) in [(minute, false), (minute + micro, true)] {
            let policy = Policy::per_second("p", 1).unwrap().ban_after(1, minute).growing_to(longest);
            let growth = policy.validated().unwrap().ban().and_then(Policy::ban_growth);
            assert_eq!(growth.is_some(), grows, "{longest:?}");
        }
    }
}
