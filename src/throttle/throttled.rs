//! The error of a call that was not made.

use std::{error, fmt, time::Duration};

use crate::decision::{Decision, Source};
use crate::error::{ConfigError, Error, ErrorKind};

/// The error of a throttled client: [`Throttled`], or the error of the inner service, boxed. `tower::BoxError` is the
/// same type.
pub(super) type BoxError = Box<dyn error::Error + Send + Sync>;

/// The error of a call that was not made: it would have waited for longer than it may, its cost can never pass, the
/// store gave no verdict, or the client had no room for it in time.
///
/// [`Throttle`](super::Throttle) returns it in a `Box<dyn Error + Send + Sync>`. The inner service was not called. A
/// call that is certain to wait for longer than [`with_max_wait`](crate::ThrottleLayer::with_max_wait) allows gets the
/// error at once.
///
/// # Examples
///
/// A job that returns later, instead of waiting in memory:
///
/// ```
/// use std::{error::Error, time::Duration};
/// use tollgate::throttle::Throttled;
///
/// /// When to run the job again; `None` if it has failed for another reason.
/// fn run_again_in(
///     error: &(dyn Error + Send + Sync + 'static),
/// ) -> Option<Duration> {
///     let throttled = error.downcast_ref::<Throttled>()?;
///     Some(throttled.retry_after().unwrap_or(Duration::from_secs(60)))
/// }
/// ```
#[derive(Clone)]
pub struct Throttled {
    cause: Cause,
    retry_after: Option<Duration>,
    /// How long the upstream has asked not to be called.
    pause: Option<Duration>,
    max_wait: Duration,
    /// How long the call had waited when it got the error.
    waited: Duration,
}

#[derive(Clone, Debug)]
enum Cause {
    /// The cost can never pass.
    TooLarge(ConfigError),
    /// A setting of the layer is wrong.
    Misconfigured(ConfigError),
    /// Boxed, because a decision is large.
    Denied(Box<Decision>),
    /// The store gave no verdict, and the failure policy refuses.
    NoVerdict(Error),
    /// The upstream has asked for a pause.
    Paused,
    /// The inner service had no place for the call.
    NoPlace,
}

impl Throttled {
    pub(super) fn too_large(error: ConfigError, max_wait: Duration) -> Self {
        Self { cause: Cause::TooLarge(error), retry_after: None, pause: None, max_wait, waited: Duration::ZERO }
    }

    pub(super) fn misconfigured(error: ConfigError, max_wait: Duration) -> Self {
        Self { cause: Cause::Misconfigured(error), retry_after: None, pause: None, max_wait, waited: Duration::ZERO }
    }

    pub(super) fn no_place(max_wait: Duration) -> Self {
        Self { cause: Cause::NoPlace, retry_after: None, pause: None, max_wait, waited: Duration::ZERO }
    }

    pub(super) fn denied(decision: Decision, pause: Option<Duration>, max_wait: Duration) -> Self {
        let retry_after = decision.retry_after().max(pause);
        Self { cause: Cause::Denied(Box::new(decision)), retry_after, pause, max_wait, waited: Duration::ZERO }
    }

    pub(super) fn without_verdict(error: Error, pause: Option<Duration>, max_wait: Duration) -> Self {
        Self { cause: Cause::NoVerdict(error), retry_after: pause, pause, max_wait, waited: Duration::ZERO }
    }

    pub(super) fn paused(pause: Duration, max_wait: Duration) -> Self {
        Self { cause: Cause::Paused, retry_after: Some(pause), pause: Some(pause), max_wait, waited: Duration::ZERO }
    }

    /// A pause that the call cannot wait for.
    pub(super) fn paused_without_timers(pause: Duration, max_wait: Duration) -> Self {
        let message = "waiting for the end of a pause needs a tokio runtime with timers; build it with `enable_all()`";
        let misconfigured = Self::misconfigured(ConfigError::new(message), max_wait);
        Self { retry_after: Some(pause), pause: Some(pause), ..misconfigured }
    }

    /// The same error of a call that had waited for `waited`.
    pub(super) fn after(self, waited: Duration) -> Self {
        Self { waited, ..self }
    }

    /// The time until a call could be made, counted from the error, at least: other calls may take their turn before.
    /// It is at least the [pause](crate::throttle#responses-that-ask-for-a-pause) for which the upstream has asked.
    ///
    /// `None` if it is not known: too many calls wait, the store gave no verdict, the client had no room, or no wait
    /// helps because the cost is above the policy's [capacity](crate::Policy::capacity).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The denial of the store or of the [queue](crate::decision::Source::Queue) of waiting calls; `None` without one.
    pub fn decision(&self) -> Option<&Decision> {
        match &self.cause {
            Cause::Denied(decision) => Some(decision),
            _ => None,
        }
    }
}

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max_wait = self.max_wait;
        match (&self.cause, self.retry_after) {
            (Cause::TooLarge(_), _) => {
                f.write_str("the cost of this call can never pass; split the call, or raise the limit")
            }
            (Cause::Misconfigured(_), _) => f.write_str(
                "the throttle is misconfigured, so no call is made; correct what the source of this error names",
            ),
            (Cause::NoPlace, _) => write!(
                f,
                "the client had no room for the call within {max_wait:?}; call again later, or set a longer wait with \
                 `with_max_wait`"
            ),
            (Cause::NoVerdict(error), _) if error.kind() == ErrorKind::InvalidCall => f.write_str(
                "the limiter refuses the call, because it is wrong; correct what the source of this error names",
            ),
            (Cause::NoVerdict(_), _) => f.write_str(
                "the limiter gave no verdict, and its failure policy refuses the call; call again later, or choose \
                 `fail_open` or `fail_local`",
            ),
            (Cause::Denied(decision), _) if decision.source() == Source::Policy => {
                f.write_str("a policy of this call is blocked, so no call is made; use a policy with a limit")
            }
            (Cause::Denied(_) | Cause::Paused, Some(wait)) if !wait.is_zero() => {
                if let Some(pause) = self.pause {
                    write!(f, "the upstream has asked not to be called for another {:?}; ", millis_up(pause))?;
                }
                write!(
                    f,
                    "a call can be made in {:?} at the earliest, and this call may wait for {max_wait:?}",
                    millis_up(wait)
                )?;
                // Below a millisecond, the call got the error at once.
                let waited = millis_down(self.waited);
                if !waited.is_zero() {
                    write!(f, ", of which it has waited {waited:?}")?;
                }
                f.write_str("; call again then, or set a longer wait with `with_max_wait`")
            }
            (Cause::Denied(_) | Cause::Paused, _) => write!(
                f,
                "too many other calls wait for this call to be made within {max_wait:?}; call again later, or make \
                 fewer calls at a time"
            ),
        }
    }
}

/// Whole milliseconds, rounded up: a microsecond more or less is noise in a message.
fn millis_up(wait: Duration) -> Duration {
    Duration::from_millis(u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// Whole milliseconds, rounded down.
fn millis_down(wait: Duration) -> Duration {
    Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

/// The message and the cause: a `main` that returns the error prints its `Debug`.
impl fmt::Debug for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        error::Error::source(self).map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

/// The source is the [`Error`] of a check without a verdict, or the [`ConfigError`] of a wrong setting or cost.
impl error::Error for Throttled {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match &self.cause {
            Cause::TooLarge(error) | Cause::Misconfigured(error) => Some(error),
            Cause::NoVerdict(error) => Some(error),
            Cause::Denied(_) | Cause::Paused | Cause::NoPlace => None,
        }
    }
}
