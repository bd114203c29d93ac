//! Requests of a layer that wait for their turn instead of being denied: the queue of `Limiter::acquire` in front of a
//! handler.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::calls::{NO_TIMERS, Purpose};
use crate::decision::{Decision, PolicyDecision, Source};
use crate::error::{Error, ErrorKind};
use crate::limiter::acquire::seat::{InOutage, QueueId};
use crate::limiter::acquire::waiter::{Delivery, Further};
use crate::limiter::acquire::{forecast::after, place::Place, queue::Recalled};
use crate::limiter::decision_future::{DecisionFuture, Sent};
use crate::limiter::{core::Core, handle::Limiter, unusual};
use crate::observe::{CheckSpan, ObservedRequest};
use crate::{check::Check, failure::FailurePolicy, policy::Algorithm, runtime::drivers::Driver};

/// By how much a request may be late at least: an admission that is a little late delays those that follow.
const LEAST_GRACE: Duration = Duration::from_millis(10);

impl Limiter {
    /// As [`decide`](Self::decide), but a request that would be denied waits for at most `max_wait` until its units are
    /// there. Requests of one key are served first come, first served.
    ///
    /// Without a verdict of the store, the failure policy decides. A request that has several charges, one that holds
    /// units, one whose denial would count, and one that no wait helps, do not wait.
    pub(crate) fn decide_within<'a>(
        &self,
        check: &mut Check,
        failure: FailurePolicy,
        max_wait: Duration,
        request: impl FnOnce() -> ObservedRequest<'a>,
    ) -> Sent {
        if !can_wait(check) {
            return self.decide(check, failure, request);
        }
        let core = Arc::clone(&self.core);
        let span = core.calls.observer.as_ref().map(|observer| CheckSpan::start(observer, check, Some(request())));
        let in_outage = InOutage::Fail { is_local: failure == FailurePolicy::Local };
        if let Some(decision) = core.charge_at_once(check, in_outage) {
            if let Some(span) = span {
                span.end(Some(&decision));
            }
            return Sent::Decided(decision);
        }
        let check = std::mem::replace(check, Check::empty());
        Sent::Waiting(DecisionFuture::queued(async move {
            let mut span = span;
            if let Some(span) = &mut span {
                span.waits();
            }
            match core.wait_for_turn(&check, max_wait, in_outage).await {
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

/// Whether a request can wait: for one limit, whose denials do not count, and which it can pass.
fn can_wait(check: &Check) -> bool {
    let [charge] = check.charges() else { return false };
    let policy = &charge.policy;
    let can_be_denied = policy.delays(charge.cost) && !policy.is_blocked();
    can_be_denied && charge.cost <= policy.capacity() && charge.hold.is_none() && !policy.counts_denials()
}

impl Core {
    /// Waits in the queue of the only charge of `check`.
    async fn wait_for_turn(
        self: &Arc<Self>,
        check: &Check,
        max_wait: Duration,
        in_outage: InOutage,
    ) -> Result<Decision, Error> {
        if !Driver::Timers.is_there() {
            return Err(Error::new(ErrorKind::StoreMisconfigured, NO_TIMERS));
        }
        let charge = &check.charges()[0];
        let id = || QueueId { key: charge.key.clone(), policy: charge.policy.clone(), in_outage };
        let place = Place {
            core: Arc::clone(self),
            id: id(),
            cost: charge.cost,
            further: Further::default(),
            shares_pauses: false,
            holds: false,
            deadline: after(Instant::now(), max_wait),
            grace: (max_wait / 10).max(LEAST_GRACE),
            ticket: None,
            watches: false,
            seat: None,
            delivery: None,
        };
        let Delivery { outcome, .. } = place.wait().await;
        let decision = with_verdict(outcome?)?.about(&charge.key);
        let is_exact = matches!(charge.policy.algorithm(), Algorithm::TokenBucket | Algorithm::FixedWindow);
        if decision.is_allowed() || is_exact || !matches!(decision.source(), Source::Queue | Source::WaitersFull) {
            return Ok(decision);
        }
        // The queue knows the shortest wait, and the store the wait of this cost.
        let recalled = self.queues.recall(&id(), charge.cost);
        let of_store = match recalled {
            Recalled::Known(denial) => denial,
            Recalled::Ask(asked) => {
                let peeked = unusual::ask(Arc::clone(self), check.clone(), Purpose::PEEK_AT_COSTS).await;
                let denial = peeked.ok().filter(|of_store| !of_store.is_allowed());
                self.queues.remember(&id(), asked, charge.cost, denial.clone());
                denial
            }
        };
        Ok(match of_store {
            Some(of_store) => behind_others(&of_store, &decision),
            None => decision,
        })
    }
}

/// The denial of the store, not earlier than the queue says: the store knows nothing of those who wait.
fn behind_others(of_store: &Decision, of_queue: &Decision) -> Decision {
    let Some(standing) = of_store.policies().first() else { return of_store.clone() };
    let of_queue = of_queue.retry_after().unwrap_or_default();
    let retry_after = standing.retry_after.map(|wait| wait.max(of_queue));
    let standing = PolicyDecision { retry_after, ..standing.clone() };
    Decision::on_waiter(false, of_store.source(), of_store.time_us().unwrap_or(0), Some(standing))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, policy::HoldSettings};

    #[test]
    fn a_request_waits_for_one_limit_that_it_can_pass_and_whose_denials_do_not_count() {
        let policy = Policy::per_minute("p", 5).unwrap();
        let held = policy.clone().with_holds(HoldSettings::new());
        let banning = policy.clone().ban_after(3, Duration::from_secs(60));
        for (check, waits) in [
            (Check::new("k", &policy, 1), true),
            (Check::new("k", &policy, 5), true),
            (Check::new("k", &policy, 6), false),
            (Check::new("k", &policy, 0), false),
            (Check::new("k", &policy, 1).and("other", &policy, 1), false),
            (Check::new("k", &policy.clone().with_shadow(true), 1), false),
            (Check::new("k", &Policy::blocked("p").unwrap(), 1), false),
            (Check::new("k", &banning, 1), false),
            (Check::hold("k", &held, 1), false),
        ] {
            assert_eq!(can_wait(&check), waits, "{check:?}");
        }
    }

    #[test]
    fn a_wait_that_ends_before_anything_is_known_of_the_key_is_an_error_that_says_why() {
        let kind = |source| with_verdict(Decision::on_waiter(false, source, 0, None)).unwrap_err().kind();
        assert_eq!([Source::WaitersFull, Source::Queue].map(kind), [ErrorKind::Overloaded, ErrorKind::Deadline]);
    }
}
