//! Requests of a layer that wait for their turn instead of being denied: the queue of `Limiter::acquire` in front of a
//! handler.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    calls::NO_TIMERS,
    check::{Charge, Check},
    decision::{Decision, Source},
    error::{Error, ErrorKind},
    failure::FailurePolicy,
    limiter::{
        acquire::{
            forecast::after,
            place::Place,
            seat::{InOutage, QueueId},
            waiter::{Delivery, Further, never_fits},
        },
        decision_future::{DecisionFuture, Sent},
        handle::Limiter,
    },
    observe::{CheckSpan, ObservedRequest},
    runtime::drivers::Driver,
};

/// By how much a request may be late at least: an admission that is a little late delays those that follow.
const LEAST_GRACE: Duration = Duration::from_millis(10);

impl Limiter {
    /// As [`decide`](Self::decide), but a request that would be denied waits for at most `max_wait` until its units are
    /// there. Requests with the same first charge are served first come, first served.
    ///
    /// Without a verdict of the store, the failure policy decides at once. A request that holds units, one with
    /// alternatives, and one that no wait helps, do not wait.
    pub(crate) fn decide_within<'a>(
        &self,
        check: &mut Check,
        failure: FailurePolicy,
        max_wait: Duration,
        request: impl FnOnce() -> ObservedRequest<'a>,
    ) -> Sent {
        let Some((first, further)) = turn_of(check) else { return self.decide(check, failure, request) };
        let core = Arc::clone(&self.core);
        let span = core.calls.observer.as_ref().map(|observer| CheckSpan::start(observer, check, Some(request())));
        let check = further.add_to(Check::new(first.key.clone(), &first.policy, first.cost));
        let in_outage = InOutage::Fail;
        if let Some(decision) = core.charge_at_once(&check, in_outage) {
            if let Some(span) = span {
                span.end(Some(&decision));
            }
            return Sent::Decided(decision);
        }
        let place = Place {
            core: Arc::clone(&core),
            id: QueueId { key: first.key, policy: first.policy, in_outage },
            cost: first.cost,
            further,
            shares_pauses: false,
            holds: false,
            deadline: after(Instant::now(), max_wait),
            grace: (max_wait / 10).max(LEAST_GRACE),
            ticket: None,
            watches: false,
            seat: None,
            delivery: None,
        };
        Sent::Waiting(DecisionFuture::queued(async move {
            let mut span = span;
            if let Some(span) = &mut span {
                span.waits();
            }
            let delivery = match Driver::Timers.is_there() {
                true => place.wait().await,
                false => Delivery::of(Err(Error::new(ErrorKind::StoreMisconfigured, NO_TIMERS))),
            };
            match delivery.outcome.and_then(with_verdict) {
                Ok(decision) => {
                    if let Some(span) = span {
                        span.end(Some(&decision));
                    }
                    decision
                }
                Err(error) => core.apply_failure_policy(&check, error, failure, span),
            }
        }))
    }
}

/// The decision, or an error if the wait has ended before the store has said anything about the key.
fn with_verdict(decision: Decision) -> Result<Decision, Error> {
    if decision.is_allowed() || !decision.policies().is_empty() {
        return Ok(decision);
    }
    Err(match decision.source() {
        Source::WaitersFull => {
            Error::new(ErrorKind::Overloaded, "too many requests wait for their turn, and the store has not answered")
        }
        _ => Error::new(ErrorKind::Deadline, "the store has not answered while the request waited for its turn"),
    })
}

/// The charge in whose queue a request waits, and the others: the first that can deny it. `None` if the request does
/// not wait.
fn turn_of(check: &Check) -> Option<(Charge, Further)> {
    let charges = check.charges();
    let is_plain = |charge: &Charge| charge.hold.is_none() && !charge.is_alternative();
    if !charges.iter().all(is_plain) || charges.iter().any(never_fits) {
        return None;
    }
    let first = charges.iter().position(|charge| charge.cost > 0 && !charge.policy.is_shadow())?;
    let others = charges.iter().enumerate().filter(|(number, _)| *number != first);
    Some((charges[first].clone(), Further::new(others.map(|(_, charge)| charge.clone()))))
}
