//! Bans: a policy of their own, under which another's denials are counted.

use std::time::Duration;

use super::{
    Algorithm, Policy,
    definition::{Definition, micros_up},
};
use crate::error::ConfigError;

impl Policy {
    /// Bans a key for `duration` that was denied `denials` times within `duration`: until then it is refused outright,
    /// whatever is available, by every instance that shares the store.
    ///
    /// The ban begins with the last of these denials, whose Retry-After is the end of the ban already, and it is not made
    /// longer by what comes in meanwhile: that is refused without being counted, on Redis mostly from memory (see
    /// `RedisStoreBuilder::deny_cache`), also by a policy that counts rejections. A cost of 0 passes. Denials before it are all brought before the store, for it has to count them. A
    /// peek, and a cost that could never pass, is no denial; nor is a refusal because of another policy.
    /// [`Limiter::reset`](crate::Limiter::reset) lifts a ban.
    ///
    /// Choose `denials` with room for those who wait as they are told: under the limit's full load they may be denied once
    /// for every unit that comes back. Keeps one more key in the store, of one record per denial. Other denials and the same
    /// duration hold at once for what is counted; another duration starts afresh. Without a
    /// verdict of the store nobody is banned but by the local fallback, which counts denials of its own. Stores other than
    /// [`MemoryStore`](crate::MemoryStore) and `RedisStore` ban nobody. Defaults to no ban, because a client that waits as
    /// told should pass.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidBan`] if `denials` is 0, or the duration is shorter than 1 µs or longer than
    /// [`MAX_WINDOW`](Self::MAX_WINDOW).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let login = Policy::per_minute("login", 5)?.ban_after(10, Duration::from_secs(600))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ban_after(self, denials: u32, duration: Duration) -> Result<Self, ConfigError> {
        if denials == 0 || !(Duration::from_micros(1)..=Self::MAX_WINDOW).contains(&duration) {
            return Err(ConfigError::InvalidBan { policy: self.name().to_owned(), denials, duration });
        }
        Ok(self.change(|d| d.ban = Some((denials, micros_up(duration)))))
    }

    /// What denials are counted under, if they lead to a ban.
    pub(crate) fn ban(&self) -> Option<&Self> {
        self.0.ban.as_ref()
    }

    /// Whether what it counts are another policy's denials.
    pub(crate) fn is_ban(&self) -> bool {
        self.0.definition.is_ban
    }

    /// The same limit, counted in the same place, that bans nobody.
    pub(crate) fn without_ban(&self) -> Self {
        match self.ban() {
            Some(_) => self.clone().change(|d| d.ban = None),
            None => self.clone(),
        }
    }
}

impl Definition {
    /// No other policy can have its name, for parentheses are not allowed in names.
    pub(super) fn ban_definition(&self) -> Option<Self> {
        self.ban.map(|(limit, window)| Self {
            name: format!("{}(ban)", self.name).into_boxed_str(),
            limit,
            window,
            algorithm: Algorithm::SlidingWindowLog,
            resolution: 1,
            burst: limit,
            count_rejected: false,
            ban: None,
            is_ban: true,
            unit: None,
            partition_keys: None,
        })
    }
}
