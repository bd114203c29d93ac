//! The product without HTTP.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::time::Sleep;

use crate::{
    check::Check,
    decision::Decision,
    error::{Error, ErrorKind},
    failure::FailurePolicy,
    key::Key,
    observe::{self, Observer, Watch},
    policy::Policy,
    store::{Answer, Store, Verdict},
};

/// Judges checks against a store, within its deadline.
///
/// Jobs, consumers and outbound clients call it directly; [`RateLimitLayer`](crate::RateLimitLayer) is a thin skin
/// over it. Clones share the store, so they spend from one budget.
///
/// # Examples
///
/// ```
/// use tollgate::{FailurePolicy, Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let quota = Policy::per_day("quota", 9_500)?;
///
/// let decision = limiter.check("key1", &quota, 100).await?;
/// assert!(decision.is_allowed());
/// assert_eq!(decision.available(), Some(9_400));
///
/// // Or say at the call what a store that cannot answer means.
/// let decision = FailurePolicy::Open.resolve(limiter.check("key1", &quota, 1).await);
/// assert!(decision.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    store: Arc<dyn Store>,
    observer: Option<Arc<dyn Observer>>,
}

impl Limiter {
    /// Creates a limiter over `store`. No I/O happens before the first check.
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), observer: None }
    }

    /// Tells `observer`, beside those that were set before, what this limiter does; see [`observe`](crate::observe).
    ///
    /// Clones made from here on tell it too, those that exist already do not. What only the store knows of, its
    /// batches, goes to the observers of the limiter that was given one last.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        let observer = observe::both(self.observer.take(), Arc::new(observer));
        self.store.set_observer(&observer);
        self.observer = Some(observer);
        self
    }

    /// Charges `cost` units to `key` under `policy`, if they fit.
    ///
    /// # Errors
    ///
    /// The future resolves to an [`Error`] if the store gives no verdict within its deadline.
    ///
    /// # Cancel safety
    ///
    /// Nothing is sent before the first poll. Dropped later, the check may have been charged without a verdict; it is
    /// never sent twice.
    pub fn check(&self, key: impl Into<Key>, policy: &Policy, cost: u32) -> CheckFuture {
        self.decide(Check::new(key, policy, cost))
    }

    /// Pays all charges of `check`, or none.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::check`].
    #[inline]
    pub fn decide(&self, check: Check) -> CheckFuture {
        CheckFuture { state: State::Unsent { limiter: self.clone(), check } }
    }

    /// Tells where `key` stands under `policy`. Charges nothing.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub fn peek(&self, key: impl Into<Key>, policy: &Policy) -> CheckFuture {
        self.check(key, policy, 0)
    }

    /// Forgets what `key` has spent under `policy`.
    ///
    /// # Errors
    ///
    /// [`Error`] if the store does not answer within its deadline; whether it forgot is then unknown.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the key may be reset although the future was dropped.
    pub async fn reset(&self, key: impl Into<Key>, policy: &Policy) -> Result<(), Error> {
        match self.store.reset(&key.into(), policy) {
            Answer::Ready(result) => result,
            Answer::Pending(future) => {
                let deadline = self.store.deadline();
                tokio::time::timeout(deadline, future).await.map_err(|_| late(&*self.store))?
            }
        }
    }

    /// Sends the check: the decision itself where the store knows it at once, otherwise the future of it.
    /// Takes the charges out of it. `failure` is what the caller makes of an error, for the observer.
    #[inline]
    pub(crate) fn send(&self, check: &mut Check, failure: Option<FailurePolicy>) -> Sent {
        match &self.observer {
            None => self.send_unobserved(check),
            Some(observer) => self.send_observed(check, observer, failure),
        }
    }

    #[inline]
    fn send_unobserved(&self, check: &mut Check) -> Sent {
        match self.store.check(check) {
            Answer::Ready(verdict) => Sent::Decided(verdict.map(|verdict| Decision::new(check, verdict))),
            Answer::Pending(verdict) => Sent::Waiting(self.waiting(check, verdict, None)),
        }
    }

    /// Out of the way of those who have no observer.
    #[cold]
    #[inline(never)]
    fn send_observed(&self, check: &mut Check, observer: &Arc<dyn Observer>, failure: Option<FailurePolicy>) -> Sent {
        let watch = Watch::start(observer, check, failure);
        match self.store.check(check) {
            Answer::Ready(verdict) => {
                let result = verdict.map(|verdict| Decision::new(check, verdict));
                watch.end(&result);
                Sent::Decided(result)
            }
            Answer::Pending(verdict) => Sent::Waiting(self.waiting(check, verdict, Some(Box::new(watch)))),
        }
    }

    fn waiting(&self, check: &mut Check, verdict: PendingVerdict, watch: Option<Box<Watch>>) -> CheckFuture {
        let (store, check) = (Arc::clone(&self.store), std::mem::replace(check, Check::empty()));
        CheckFuture { state: State::Sent(Waiting { store, check, verdict, deadline: None, watch }) }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("store", &self.store).finish()
    }
}

/// A check that the store has.
pub(crate) enum Sent {
    Decided(Result<Decision, Error>),
    Waiting(CheckFuture),
}

/// The future of a [`Decision`], returned by [`Limiter::check`].
#[must_use = "nothing is charged before it is polled"]
pub struct CheckFuture {
    state: State,
}

enum State {
    Unsent { limiter: Limiter, check: Check },
    Sent(Waiting),
    Done,
}

struct Waiting {
    store: Arc<dyn Store>,
    check: Check,
    verdict: PendingVerdict,
    deadline: Option<Pin<Box<Sleep>>>,
    watch: Option<Box<Watch>>,
}

type PendingVerdict = Pin<Box<dyn Future<Output = Result<Verdict, Error>> + Send>>;

impl Future for CheckFuture {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let result = match &mut self.state {
                State::Unsent { limiter, check } => match limiter.send(check, None) {
                    Sent::Decided(result) => result,
                    Sent::Waiting(sent) => {
                        *self = sent;
                        continue;
                    }
                },
                State::Sent(waiting) => ready!(waiting.poll(cx)),
                State::Done => panic!("a future is not polled after it is ready"),
            };
            self.state = State::Done;
            return Poll::Ready(result);
        }
    }
}

impl Waiting {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Decision, Error>> {
        let result = match self.verdict.as_mut().poll(cx) {
            Poll::Ready(result) => result.map(|verdict| Decision::new(&mut self.check, verdict)),
            Poll::Pending => {
                // Counts from the first poll, for nothing is sent before it.
                let sleep = || Box::pin(tokio::time::sleep(self.store.deadline()));
                ready!(self.deadline.get_or_insert_with(sleep).as_mut().poll(cx));
                Err(late(&*self.store))
            }
        };
        if let Some(watch) = self.watch.take() {
            watch.end(&result);
        }
        Poll::Ready(result)
    }
}

impl fmt::Debug for CheckFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckFuture")
    }
}

fn late(store: &dyn Store) -> Error {
    Error::new(ErrorKind::Deadline, format!("no answer within {:?}", store.deadline())).charge_unknown()
}
