//! The future of a check whose caller handles errors. A check is asked directly, by shards, or from a block of units.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll, ready};
use std::{fmt, mem, pin::Pin, sync::Arc};

use tokio::time::Instant;

use crate::calls::{CheckCall, Purpose};
use crate::error::{ConfigError, Error};
use crate::limiter::{core::Core, lease, unusual};
use crate::store::{Answer, Pending};
use crate::{check::Check, decision::Decision, observe::CheckSpan, verdict::Verdict};

/// The future of a [`Decision`], returned by [`Limiter::check`](crate::Limiter::check).
///
/// # Cancel safety
///
/// Nothing is sent before the first poll. If the future is dropped later, the check may have been charged; it is never
/// sent again.
///
/// # Panics
///
/// Panics if the future is polled again after it has returned its result.
///
/// # Examples
///
/// With a timeout that is shorter than the store's deadline:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let limiter = Limiter::new(MemoryStore::new());
/// let quota = Policy::per_day("quota", 9_500)?;
/// let check = limiter.check("api-key-1", &quota, 100);
/// match tokio::time::timeout(Duration::from_millis(5), check).await {
///     Ok(result) => println!("allowed: {}", result?.is_allowed()),
///     Err(_) => println!("no verdict yet; the check may have been charged"),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is charged before the future is polled"]
pub struct CheckFuture {
    core: Arc<Core>,
    check: Check,
    purpose: Purpose,
    /// Whether observers see the check.
    is_seen: bool,
    state: CheckState,
}

enum CheckState {
    Unsent,
    /// Boxed, so that the future of a check that need not wait is small.
    Waiting(Box<Waiting>),
    /// Neither charges all nor nothing: a peek at costs, or a charge of what fits.
    Unusual,
    Asked(Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>>),
    /// The call was wrong: it has a mistake, asks for a local fallback that the limiter does not have, or would leave
    /// units behind. Boxed for the same reason.
    Failed(Box<Error>),
    Done,
}

impl CheckFuture {
    #[inline]
    pub(super) fn new(purpose: Purpose, core: Arc<Core>, check: Check) -> Self {
        let accepted = core.validate(&check);
        Self::accepted(purpose, core, check, accepted)
    }

    /// A check that was judged already, and fails if it is not accepted. Built in one go: a check is large to move.
    #[inline]
    pub(super) fn accepted(purpose: Purpose, core: Arc<Core>, check: Check, accepted: Result<(), ConfigError>) -> Self {
        let state = match accepted {
            Ok(()) => CheckState::Unsent,
            Err(error) => CheckState::Failed(Box::new(error.into())),
        };
        Self { core, check, purpose, is_seen: true, state }
    }

    /// A valid check of the limiter itself. Observers do not see it: they see the call for which it is made. They see
    /// its failure if that call gets a decision all the same.
    #[inline]
    pub(super) fn unseen(core: Arc<Core>, check: Check, purpose: Purpose) -> Self {
        Self { core, check, purpose, is_seen: false, state: CheckState::Unsent }
    }

    /// A check that does not charge all of its units or none.
    pub(super) fn unusual(purpose: Purpose, core: Arc<Core>, check: Check, accepted: Result<(), ConfigError>) -> Self {
        let state = accepted.map_or_else(|error| CheckState::Failed(Box::new(error.into())), |()| CheckState::Unusual);
        Self { core, check, purpose, is_seen: true, state }
    }

    /// Lets the limiter's [local fallback](crate::Limiter::with_local_fallback) judge if the store gives no verdict.
    ///
    /// If the limiter has no fallback, the result is an error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall),
    /// also while the store is healthy, and nothing is charged.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
    /// let quota = Policy::per_day("quota", 9_500)?;
    /// let decision = limiter.check("key1", &quota, 100).fail_local().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_local(mut self) -> Self {
        match self.state {
            CheckState::Unsent | CheckState::Unusual if self.core.calls.fallback.is_none() => {
                self.state = CheckState::Failed(Box::new(ConfigError::local_without_fallback().into()));
            }
            _ => self.purpose = self.purpose.with_fallback(),
        }
        self
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(super) fn abandon(&mut self) -> bool {
        match &mut self.state {
            CheckState::Waiting(waiting) => waiting.abandon(),
            CheckState::Asked(_) => true,
            CheckState::Unsent | CheckState::Unusual | CheckState::Failed(_) | CheckState::Done => false,
        }
    }

    /// Polls a check that could not be answered at once.
    fn poll_unanswered(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let Self { core, check, purpose, state, .. } = self;
        let result = match state {
            CheckState::Waiting(waiting) => match ready!(waiting.poll(core, check, *purpose, cx)) {
                Ok(verdict) => Ok(core.on_verdict(check, &verdict, *purpose, waiting.take_span())),
                Err(error) => core.on_error(check, error, *purpose, waiting.take_span()),
            },
            CheckState::Asked(decision) => ready!(decision.as_mut().poll(cx)),
            CheckState::Unusual => {
                let check = mem::replace(check, Check::empty());
                *state = CheckState::Asked(unusual::ask(Arc::clone(core), check, *purpose));
                return self.poll_unanswered(cx);
            }
            CheckState::Failed(error) => Err((**error).clone()),
            CheckState::Unsent | CheckState::Done => {
                panic!("a CheckFuture was polled after it had returned its result")
            }
        };
        self.state = CheckState::Done;
        Poll::Ready(result)
    }
}

impl Core {
    /// Asks for a check of the limiter itself.
    pub(super) async fn ask(self: &Arc<Self>, check: Check, purpose: Purpose) -> Result<Decision, Error> {
        let observed = self.calls.observer.is_some().then(|| check.clone());
        let decision = CheckFuture::unseen(Arc::clone(self), check, purpose).await?;
        self.calls.report_near_limits(observed.as_ref(), &decision);
        Ok(decision)
    }

    /// As [`ask`](Self::ask), but an error is returned without a report and without a judgement of the share: both are
    /// the caller's.
    pub(super) async fn ask_unreported(
        self: &Arc<Self>,
        mut check: Check,
        purpose: Purpose,
    ) -> Result<Decision, Error> {
        let mut route = self.route(&check);
        // Keeps the room of the share until the verdict is counted.
        let mut waiting = None;
        let verdict = match self.send(&mut route, &check, purpose, true) {
            Answer::Ready(result) => result?,
            Answer::Pending(verdict) => {
                let waiting = waiting.insert(Waiting::new(self, route, verdict, None));
                poll_fn(|cx| waiting.poll(self, &check, purpose, cx)).await?
            }
        };
        let observed = self.calls.observer.is_some().then(|| check.clone());
        let decision = self.on_verdict(&mut check, &verdict, purpose, None);
        drop(waiting);
        self.calls.report_near_limits(observed.as_ref(), &decision);
        Ok(decision)
    }
}

impl Future for CheckFuture {
    type Output = Result<Decision, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let CheckState::Unsent = this.state else { return this.poll_unanswered(cx) };
        this.state = CheckState::Done;
        let Self { core, check, purpose, is_seen, state } = this;
        let span = core.calls.start_span(check).map(|span| span.seen(*is_seen));
        let mut route = core.route(check);
        match core.send(&mut route, check, *purpose, true) {
            // By reference, because a verdict is large to move.
            Answer::Ready(Ok(ref verdict)) => Poll::Ready(Ok(core.on_verdict(check, verdict, *purpose, span))),
            Answer::Ready(Err(error)) => Poll::Ready(core.on_error(check, error, *purpose, span)),
            Answer::Pending(verdict) => {
                *state = CheckState::Waiting(Box::new(Waiting::new(core, route, verdict, span)));
                this.poll_unanswered(cx)
            }
        }
    }
}

impl fmt::Debug for CheckFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckFuture")
    }
}

/// The wait of a check. Its owner has the check itself.
pub(super) struct Waiting {
    verdict: Awaited,
    span: Option<Box<CheckSpan>>,
}

enum Awaited {
    Store(CheckCall),
    /// As `Store`, sent at this time, under a policy with a lease.
    Cold(CheckCall, Instant),
    /// One or two calls of the store, each with its own permit, or a block of units.
    Detour(Pending<Verdict>),
}

impl Waiting {
    /// Also sends the ends of holds that an ended runtime has left, so that they reach the store with this check.
    pub(super) fn new(core: &Arc<Core>, route: Route, verdict: Pending<Verdict>, span: Option<Box<CheckSpan>>) -> Self {
        let verdict = match route {
            Route::Direct => {
                core.holds.look_after();
                Awaited::Store(CheckCall::new(verdict))
            }
            Route::Cold => Awaited::Cold(CheckCall::new(verdict), Instant::now()),
            Route::ByPolicy | Route::Shards | Route::Lease => Awaited::Detour(verdict),
        };
        Self { verdict, span }
    }

    /// Polls for the verdict on `check`, behind the breaker and the deadline.
    pub(super) fn poll(
        &mut self,
        core: &Arc<Core>,
        check: &Check,
        purpose: Purpose,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Verdict, Error>> {
        if let Some(span) = &mut self.span {
            span.waits();
        }
        Poll::Ready(match &mut self.verdict {
            Awaited::Store(call) => ready!(call.poll(&core.calls, check, check, purpose, cx)),
            Awaited::Detour(verdict) => ready!(Pin::new(verdict).poll(cx)),
            Awaited::Cold(call, sent) => {
                let verdict = ready!(call.poll(&core.calls, check, check, purpose, cx))?;
                match lease::on_cold_verdict(core, check, purpose, verdict, *sent) {
                    Answer::Ready(result) => result,
                    Answer::Pending(mut verdict) => {
                        let polled = Pin::new(&mut verdict).poll(cx);
                        self.verdict = Awaited::Detour(verdict);
                        ready!(polled)
                    }
                }
            }
        })
    }

    /// Gives the check up. Returns whether the store may have received it, or may still receive it.
    pub(super) fn abandon(&mut self) -> bool {
        match &mut self.verdict {
            Awaited::Store(call) | Awaited::Cold(call, _) => call.abandon(),
            Awaited::Detour(_) => true,
        }
    }

    pub(super) fn take_span(&mut self) -> Option<Box<CheckSpan>> {
        self.span.take()
    }
}

/// How a check is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Route {
    /// The check goes to the store as it is.
    Direct,
    /// A policy is blocked, or there is no charge.
    ByPolicy,
    /// A policy has shards: each charge goes to one of them.
    Shards,
    /// A policy has a lease, or this process holds blocks of its counts.
    Lease,
    /// A policy has a lease, which the key does not need now: the check has gone to the store as it is.
    Cold,
}

impl Core {
    #[inline]
    pub(super) fn route(&self, check: &Check) -> Route {
        if check.is_direct() && self.calls.held.check_beside(check).is_none() {
            Route::Direct
        } else if check.is_decided_by_policy() {
            Route::ByPolicy
        } else if check.is_sharded() {
            Route::Shards
        } else {
            Route::Lease
        }
    }

    /// Decides a check of which the store does not get all charges: none if a blocked policy is enforced, and otherwise
    /// those beside blocked shadow policies.
    #[cold]
    fn ask_beside_blocked(self: &Arc<Self>, check: &Check, purpose: Purpose) -> Answer<Verdict> {
        let Some(others) = check.beside_blocked() else { return Answer::Ready(Ok(Verdict::of_policies(check, false))) };
        if others.charges().is_empty() {
            return Answer::Ready(Ok(Verdict::of_policies(check, true)));
        }
        match lease::judge(self, &others, purpose) {
            Answer::Ready(result) => Answer::Ready(result.map(|verdict| verdict.with_blocked(check))),
            Answer::Pending(pending) => {
                let check = check.clone();
                Answer::Pending(pending.map(move |verdict| verdict.with_blocked(&check)))
            }
        }
    }

    /// Asks for a check by its route, which may turn from [`Route::Lease`] to [`Route::Cold`]. A pending answer of
    /// [`Route::Direct`] and [`Route::Cold`] is the store's, and needs a permit and a deadline; the others have them.
    /// Nothing is charged by an answer that is not polled. `may_wait`: whether the caller can wait for a block.
    #[inline(always)]
    pub(super) fn send(
        self: &Arc<Self>,
        route: &mut Route,
        check: &Check,
        purpose: Purpose,
        may_wait: bool,
    ) -> Answer<Verdict> {
        match *route {
            Route::Direct => self.calls.store.check(check),
            Route::ByPolicy => self.ask_beside_blocked(check, purpose),
            // Shards spend from no block, but a denial gives back what this process holds of their counts.
            Route::Shards => lease::judge(self, check, purpose),
            Route::Lease | Route::Cold => {
                let mut is_cold = false;
                let answer = lease::ask(self, check, purpose, may_wait, &mut is_cold);
                if is_cold {
                    *route = Route::Cold;
                }
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The compiler moves a larger future by a call of memcpy, which took a tenth of the time of a client's check.
    #[test]
    fn the_future_of_a_check_is_moved_without_a_call() {
        assert!(size_of::<CheckFuture>() <= 128, "{}", size_of::<CheckFuture>());
    }
}
