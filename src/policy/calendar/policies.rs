//! Policies whose windows a calendar bounds.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Calendar, CalendarWindows};
use crate::policy::{Algorithm, limit::Policy};
use crate::{clock::micros, error::ConfigError};

impl Policy {
    /// Creates a policy of `limit` units in each window of a [`Calendar`]: for quotas that people are billed for.
    ///
    /// In each window at most `limit` units pass. As with a [fixed window](Algorithm::FixedWindow), a full limit just
    /// before a boundary and another one just after it both pass. `available`, the waits and the response fields tell
    /// the real end of the window. [`window`](Self::window) is `None`, because windows differ in length.
    ///
    /// The store's clock decides in which window a request is. A `RedisStore` computes the window from the store's
    /// time, and the store compares it with its clock: near a boundary a check may need a second round trip. Counts
    /// belong to the policy's name and its calendar, so another calendar starts a fresh count.
    ///
    /// Holds, leases, shards, bans, shadow policies, plans and live changes work as with a fixed window: what is
    /// settled is charged to the window of its settlement. It is a [mistake](Self#mistakes) to set an algorithm other
    /// than the fixed window.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`] for the name and the limit; and [`ConfigError`] for the first mistake of the calendar.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Calendar, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let billing = Policy::calendar("billing", 100_000, Calendar::monthly())?;
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let decision = limiter.check("account:7", &billing, 40).await?;
    /// // Until the first of the next month, 0:00 UTC:
    /// assert_eq!(decision.available(), Some(99_960));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "quota")]
    #[doc(alias = "monthly")]
    #[doc(alias = "per_month")]
    #[doc(alias = "billing")]
    pub fn calendar(name: impl Into<String>, limit: u64, calendar: Calendar) -> Result<Self, ConfigError> {
        let policy = Self::new(name, limit, Duration::from_secs(1))?;
        let windows = calendar.windows().map_err(|mistake| ConfigError::of_policy(policy.name(), mistake))?;
        Ok(policy.change(|d| {
            d.window_us = windows.longest_us();
            d.algorithm = Algorithm::FixedWindow;
            d.calendar = Some(windows);
        }))
    }

    /// The window of a calendar policy at a time: its start, and its end, which is the start of the next one. `None`
    /// for other policies. Times before 1970 count as its first instant.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tollgate::{Calendar, Policy};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let monthly = Policy::calendar("billing", 100_000, Calendar::monthly())?;
    /// let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    /// let january = at(1_767_225_600)..at(1_769_904_000); // of 2026
    /// assert_eq!(monthly.calendar_window(at(1_768_000_000)), Some(january));
    /// # Ok(())
    /// # }
    /// ```
    pub fn calendar_window(&self, time: SystemTime) -> Option<Range<SystemTime>> {
        let window = self.calendar_windows()?.at(micros(time.duration_since(UNIX_EPOCH).unwrap_or_default()));
        let at = |time_us| UNIX_EPOCH.checked_add(Duration::from_micros(time_us));
        Some(at(window.start_us)?..at(window.end_us)?)
    }

    /// The windows of a calendar policy.
    #[inline]
    pub(crate) fn calendar_windows(&self) -> Option<&CalendarWindows> {
        self.definition().calendar.as_ref()
    }

    /// When the fixed window, or the window of the calendar, of a time ends.
    #[inline]
    pub(crate) fn window_end_us(&self, now_us: u64) -> u64 {
        match self.calendar_windows() {
            None => now_us - now_us % self.window_us() + self.window_us(),
            Some(windows) => windows.at(now_us).end_us,
        }
    }

    /// No window of the policy is shorter, in microseconds.
    pub(crate) fn shortest_window_us(&self) -> u64 {
        self.calendar_windows().map_or(self.window_us(), CalendarWindows::shortest_us)
    }
}

#[cfg(all(test, feature = "zones"))]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(86_400);

    /// The clocks of Troll are moved by two hours.
    #[test]
    fn no_window_is_shorter_or_longer_than_its_days_by_more_than_three_hours() {
        for (calendar, least, most) in [
            (Calendar::daily(), 1_u32, 1_u32),
            (Calendar::weekly(), 7, 7),
            (Calendar::monthly(), 28, 31),
            (Calendar::yearly(), 365, 366),
        ] {
            let policy = Policy::calendar("p", 1, calendar.zone("Antarctica/Troll")).unwrap();
            let bounds = Duration::from_micros(policy.shortest_window_us())..=policy.window_length();
            assert_eq!(bounds, DAY * least - HOUR * 3..=DAY * most + HOUR * 3);
            // Four years from 2024-10-04 on.
            let mut start = UNIX_EPOCH + DAY * 20_000;
            while start < UNIX_EPOCH + DAY * 21_461 {
                let window = policy.calendar_window(start).unwrap();
                assert!(bounds.contains(&window.end.duration_since(window.start).unwrap()), "{window:?}");
                assert!(window.end > start, "{window:?}");
                start = window.end;
            }
        }
    }
}
