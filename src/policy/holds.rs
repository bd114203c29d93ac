//! Holds of a policy: charges whose final cost is known later.

use std::time::Duration;

use crate::policy::micros_up;

/// How a policy treats [holds](crate::Limiter::hold): how long they last, and what becomes of one that is not settled.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Policy, policy::HoldSettings};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let tokens =
///     Policy::per_minute("tokens", 100_000)?.with_holds(HoldSettings::new());
///
/// // A slot that is given back if the process that holds it ends.
/// let holds = HoldSettings::new()
///     .with_ttl(Duration::from_secs(10))
///     .with_unsettled_released(true);
/// let slots = Policy::per_minute("slots", 3)?.with_holds(holds);
/// # let _ = (tokens.validated()?, slots.validated()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldSettings {
    ttl: Duration,
    typical: Duration,
    longest: Option<Duration>,
    unsettled_released: bool,
}

impl HoldSettings {
    /// Longer than most requests, and short enough to wait for after a crash.
    const DEFAULT_TTL: Duration = Duration::from_secs(60);
    /// The shortest Retry-After.
    const DEFAULT_TYPICAL_DURATION: Duration = Duration::from_secs(1);

    /// Creates the default settings.
    pub fn new() -> Self {
        Self {
            ttl: Self::DEFAULT_TTL,
            typical: Self::DEFAULT_TYPICAL_DURATION,
            longest: None,
            unsettled_released: false,
        }
    }

    /// Sets the time-to-live: a hold that is neither settled nor renewed for so long ends by itself, by the store's
    /// clock. 1 µs to [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW). A layer renews its holds three times in each
    /// time-to-live, for as long as their requests live. So does the handle of a slot of a
    /// [concurrency limit](crate::Policy::concurrent). Other holds of jobs end unless [`Hold::renew`] is called.
    ///
    /// [`Hold::renew`]: crate::limiter::Hold::renew
    ///
    /// Defaults to 60 s: longer than most requests, and short enough to wait for after a crash.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Sets how long a hold typically lasts. Retry-After of a denial that open holds cause is never longer, because a
    /// hold may end at any time. 1 µs to [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW).
    ///
    /// Defaults to 1 s, the shortest Retry-After. Clients that wait for holds then ask every second; set a longer
    /// duration if holds usually last longer.
    #[must_use]
    pub fn with_typical_duration(self, typical: Duration) -> Self {
        Self { typical, ..self }
    }

    /// Sets the longest age of a hold that is renewed in the background: the holds of a layer, and the slots of
    /// [concurrency limits](crate::Policy::concurrent). 1 µs to [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW).
    ///
    /// Without a longest age, a client that never reads its response keeps a slot for as long as the server keeps the
    /// connection. At this age, counted from when the hold was made:
    ///
    /// * **A layer** settles the hold at once, by the bill as it stands. A request without a response gets 504 with the
    ///   body of the layer's rejection ([`Reason::HeldTooLong`](crate::rejection::Reason::HeldTooLong)), and its
    ///   handler is dropped. A response body fails with [`HeldTooLong`](crate::middleware::HeldTooLong), as soon as the
    ///   server asks for more of it. Upgraded connections go on, and so does work with a
    ///   [`HoldGuard`](crate::middleware::HoldGuard): end it in the handler. A [shadow](crate::Policy::with_shadow)
    ///   policy ends no request.
    /// * **A slot of [`Limiter::hold`](crate::Limiter::hold)** is not renewed any more, so it ends within one
    ///   time-to-live.
    ///
    /// Each such hold of a layer is an event ([`too_long`](crate::observe::Event#names)). The first hold of a
    /// limiter that reaches its longest age is a [warning](crate::observe::Warning).
    ///
    /// Defaults to no longest age: a WebSocket or a download may last for days, and only the service knows what is too
    /// long. While the work of a hold that has ended goes on, more runs than the limit says.
    #[must_use]
    pub fn with_longest(self, longest: Duration) -> Self {
        Self { longest: Some(longest), ..self }
    }

    /// Whether the units are given back when a hold ends without a settlement: its time-to-live has passed, or its
    /// handle was dropped.
    ///
    /// Defaults to `false`: all units of the hold are charged at that instant, because the work may have been done.
    #[must_use]
    pub fn with_unsettled_released(self, unsettled_released: bool) -> Self {
        Self { unsettled_released, ..self }
    }

    /// The time-to-live.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long a hold typically lasts.
    pub fn typical_duration(&self) -> Duration {
        self.typical
    }

    /// The longest age of a hold that is renewed in the background; `None` without one.
    pub(crate) fn longest(&self) -> Option<Duration> {
        self.longest
    }

    /// Whether the units of a hold that ends without a settlement are given back. If not, they are charged.
    pub fn unsettled_released(&self) -> bool {
        self.unsettled_released
    }

    /// The time-to-live in microseconds.
    pub(crate) fn ttl_us(&self) -> u64 {
        micros_up(self.ttl)
    }

    /// The typical duration in microseconds.
    pub(crate) fn typical_us(&self) -> u64 {
        micros_up(self.typical)
    }
}

impl Default for HoldSettings {
    fn default() -> Self {
        Self::new()
    }
}
