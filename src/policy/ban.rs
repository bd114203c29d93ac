//! Bans: after too many denials, a key is denied outright for a while.

use std::time::Duration;

use crate::policy::{algorithm::micros_up, limit::Policy};

impl Policy {
    /// Bans a key that was denied `denials` times within `duration`, for `duration`. Until the ban ends the key is
    /// denied, whatever is available, by every instance that shares the store.
    ///
    /// The ban begins with the last of these denials, whose Retry-After is already the end of the ban. Requests during
    /// the ban do not extend it and are not counted, also under a policy that counts denials; with Redis, most of
    /// them are denied from memory (see `RedisStoreBuilder::deny_cache`). Denials before the ban all reach the store,
    /// because it has to count them. A peek, a cost of 0, a cost that could never pass, and a denial because of another
    /// policy do not count as denials. A cost of 0 passes during a ban. [`Limiter::unban`](crate::Limiter::unban) lifts
    /// a ban, and [`Limiter::ban`](crate::Limiter::ban) bans a key without denials.
    ///
    /// Choose `denials` with room for clients that follow Retry-After: under full load they may be denied once for
    /// every unit that comes back. The ban keeps one more key in the store, with one record per denial. A changed
    /// number of denials applies at once to the denials counted so far; a changed duration starts a fresh count. While
    /// the store gives no verdict, only the local fallback bans, and counts only its own denials. Only
    /// [`MemoryStore`](crate::MemoryStore) and `RedisStore` support bans. Defaults to no ban, because a client that
    /// follows Retry-After should pass.
    ///
    /// It is a [mistake](Self#mistakes) if `denials` is 0, if the duration is shorter than 1 µs or longer than
    /// [`MAX_WINDOW`](Self::MAX_WINDOW), or if the policy has [shards](Self::with_shards) or
    /// [holds](Self::with_holds).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let login = Policy::per_minute("login", 5)?.ban_after(10, Duration::from_secs(600));
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

    /// This policy without its ban: the same limit on the same counts.
    pub(crate) fn without_ban(&self) -> Self {
        match self.ban() {
            Some(_) => self.clone().change(|d| d.ban = None),
            None => self.clone(),
        }
    }

    /// This policy as one that counts whatever it is asked to charge, also beyond the limit. A concurrency limit stays
    /// as it is.
    pub(crate) fn counting_everything(&self) -> Self {
        if self.is_concurrent() {
            return self.clone();
        }
        self.clone().change(|d| (d.denials_counted, d.ban, d.holds, d.lease) = (true, None, None, None))
    }
}
