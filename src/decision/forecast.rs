//! When nothing is left for a key that goes on as it has.

use std::time::Duration;

use super::{Decision, PolicyDecision};
use crate::policy::{Algorithm, Policy};
use crate::verdict::Source;

/// What a count has shown of a key's pace, in microseconds.
struct Observed {
    /// The time in which what is spent was spent.
    time_us: u64,
    /// After this time, the pace exhausts nothing any more.
    within_us: u64,
}

impl Decision {
    /// Time until nothing is left if the key goes on at the pace of its last window: what is spent, divided by the
    /// whole window, or by the part of a fixed window that has passed. Zero if nothing is left now. Of several
    /// policies, the shortest; [shadow policies](Policy::with_shadow) are left out. Open [holds](crate::Limiter::hold)
    /// count as spent.
    ///
    /// It needs no call of its own: it follows from the numbers of this decision, such as one of
    /// [`Limiter::peek`](crate::Limiter::peek). How exact it is depends on the algorithm:
    ///
    /// | algorithm | the pace | the time |
    /// | --- | --- | --- |
    /// | fixed window, [calendar](Policy::calendar) | of the current window, since it has begun; soon after that, of few requests | exact |
    /// | sliding window log | of the last window. A key that is younger than its window is faster than that, and is denied earlier | exact for this pace if it is shorter than [`next`](PolicyDecision::next). A longer one is the earliest: a decision does not know how much leaves the window until then, so the key may be denied later or, at an even pace, never |
    /// | sliding window counter | of the last window, as the algorithm estimates it; likewise for a young key | the earliest, as for the log |
    /// | token bucket | as if the bucket was full one window ago | an estimate, because a bucket remembers no requests |
    ///
    /// `None` if this pace does not exhaust the limit: nothing is spent, or the window ends before. Under a log and a
    /// counter, also if at most half of the capacity is spent, because all of that leaves the window before. Without a
    /// verdict, for a share of the [local fallback](crate::Limiter::with_local_fallback), and under policies with
    /// [shards](Policy::with_shards) and [concurrency limits](Policy::concurrent), it is `None` too, unless nothing is
    /// left.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, MemoryStore, Policy};
    ///
    /// # #[cfg(feature = "test-util")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::default();
    /// let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
    /// let tokens = Policy::per_hour("tokens", 1_000)?;
    /// let _ = limiter.check("tenant:3", &tokens, 800).await?;
    ///
    /// // 800 an hour, so the other 200 last for a quarter of an hour.
    /// let decision = limiter.peek("tenant:3", &tokens).await?;
    /// assert_eq!(decision.exhausted_in(), Some(Duration::from_secs(15 * 60)));
    ///
    /// // At 400 an hour, it is never denied.
    /// let _ = limiter.check("tenant:4", &tokens, 400).await?;
    /// assert_eq!(limiter.peek("tenant:4", &tokens).await?.exhausted_in(), None);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "test-util"))]
    /// # fn main() {}
    /// ```
    pub fn exhausted_in(&self) -> Option<Duration> {
        let now_us = self.time_us()?;
        let of_whole = self.source != Source::Local;
        let times = self.enforced().filter_map(|standing| standing.exhausted_in_us(now_us, of_whole));
        times.min().map(Duration::from_micros)
    }
}

impl PolicyDecision {
    /// `of_whole` is false if the numbers are those of a share of the limit.
    fn exhausted_in_us(&self, now_us: u64, of_whole: bool) -> Option<u64> {
        let Self { policy, available, .. } = self;
        if *available == 0 {
            return Some(0);
        }
        let spent = policy.capacity().saturating_sub(*available);
        if spent == 0 || !of_whole || policy.is_sharded() || policy.is_concurrent() {
            return None;
        }
        let Observed { time_us, within_us } = self.observed(now_us);
        let left_us = u128::from(*available) * u128::from(time_us) / u128::from(spent);
        u64::try_from(left_us).ok().filter(|left_us| *left_us < within_us)
    }

    fn observed(&self, now_us: u64) -> Observed {
        let window_us = self.policy.window_us();
        match self.policy.algorithm() {
            Algorithm::FixedWindow => {
                let (start_us, end_us) = window_of(&self.policy, now_us);
                // At the very start, as if in the first microsecond.
                Observed { time_us: (now_us - start_us).max(1), within_us: end_us - now_us }
            }
            Algorithm::TokenBucket => Observed { time_us: window_us, within_us: window_us },
            Algorithm::SlidingWindowCounter | Algorithm::SlidingWindowLog => {
                // A coarse log remembers more than a window.
                let time_us = window_us + self.policy.resolution_us() - 1;
                // Holds that end are charged, and leave later than the decision knows.
                let reset = if self.policy.holds().is_none() { self.reset } else { Duration::MAX };
                let reset_us = u64::try_from(reset.as_micros()).unwrap_or(u64::MAX);
                Observed { time_us, within_us: time_us.min(reset_us) }
            }
        }
    }
}

/// The start and the end of a fixed window, or of a calendar's. The start is not after `now_us`.
fn window_of(policy: &Policy, now_us: u64) -> (u64, u64) {
    match policy.calendar_windows().map(|windows| windows.at(now_us)) {
        Some(window) => (window.start_us.min(now_us), window.end_us.max(now_us)),
        None => (now_us - now_us % policy.window_us(), policy.window_end_us(now_us)),
    }
}
