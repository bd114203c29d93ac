//! The future of a caller that waits.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    check::Check,
    decision::Decision,
    error::{ConfigError, Error, ErrorKind},
    limiter::{
        acquire::{forecast::after, handle::Acquire, place::Place, queue_id::QueueId, waiter::Delivery},
        check_future::CheckFuture,
        guarded::NO_TIMERS,
    },
    observe::FailureEffect,
    runtime::drivers::Driver,
};

/// The future of a [`Decision`], returned by [`Acquire::within`].
///
/// # Cancel safety
///
/// Nothing is sent before the first poll. The future may be dropped at any time: the next waiter takes its place.
///
/// # Panics
///
/// Panics if the future is polled again after it has returned its result.
#[must_use = "nothing is charged before the future is polled"]
pub struct AcquireFuture(Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>);

impl AcquireFuture {
    pub(super) fn new(acquire: Acquire, max_wait: Duration) -> Self {
        Self(Box::pin(async move { acquire.run(max_wait).await?.outcome }))
    }
}

impl Acquire {
    /// Waits for the units, and makes a hold if `holds`.
    pub(super) async fn run(self, max_wait: Duration) -> Result<Delivery, ConfigError> {
        let Self { core, key, policy, cost, purpose, shares_pauses, holds } = self;
        if purpose.uses_fallback() && core.fallback.is_none() {
            return Err(ConfigError::LocalWithoutFallback);
        }
        if holds && !core.store.has_holds() {
            return Err(ConfigError::StoreWithoutHolds);
        }
        let check = match holds {
            true => Check::hold(key.clone(), &policy, cost)?,
            false => Check::new(key.clone(), &policy, cost),
        };
        if !holds {
            check.refuse_holds()?;
        }
        if policy.is_shadow() && !holds {
            return Ok(Delivery::of(CheckFuture::new(purpose, core, check).await));
        }
        let span = core.start_span(&check);
        let result = if cost == 0 || cost > policy.capacity() || policy.is_shadow() {
            // No wait changes the outcome.
            match holds {
                true => Delivery::of_held(core.ask_for_hold(check, purpose).await),
                false => Delivery::of(core.ask(check, purpose).await),
            }
        } else if !Driver::Timers.is_there() {
            Delivery::of(Err(Error::new(ErrorKind::Misconfigured, NO_TIMERS)))
        } else {
            let place = Place {
                core: Arc::clone(&core),
                id: QueueId { key, policy, purpose },
                cost,
                shares_pauses,
                holds,
                deadline: after(Instant::now(), max_wait),
                ticket: None,
                watches: false,
                delivery: None,
            };
            place.wait().await
        };
        if let Some(span) = span {
            if let Err(error) = &result.outcome {
                span.failed(error, FailureEffect::Error);
            }
            span.end(result.outcome.as_ref().ok());
        }
        Ok(result)
    }
}

impl Future for AcquireFuture {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AcquireFuture")
    }
}
