//! The product without HTTP.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::time::Sleep;

use crate::{
    check::Check,
    decision::Decision,
    error::{Error, ErrorKind},
    key::Key,
    policy::Policy,
    store::{Answer, Store},
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
}

impl Limiter {
    /// Creates a limiter over `store`. No I/O happens before the first check.
    pub fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store) }
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
    pub fn decide(&self, check: Check) -> CheckFuture {
        CheckFuture { state: State::Unsent { limiter: self.clone(), check: Some(check) } }
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
    pub(crate) fn send(&self, check: Check) -> Result<Result<Decision, Error>, CheckFuture> {
        match self.store.check(&check) {
            Answer::Ready(verdict) => Ok(verdict.map(|verdict| Decision::new(check, verdict))),
            Answer::Pending(verdict) => {
                let limiter = self.clone();
                Err(CheckFuture { state: State::Sent { limiter, check: Some(check), verdict, deadline: None } })
            }
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("store", &self.store).finish()
    }
}

pin_project! {
    /// The future of a [`Decision`], returned by [`Limiter::check`].
    #[must_use = "nothing is charged before it is polled"]
    pub struct CheckFuture {
        #[pin]
        state: State,
    }
}

type VerdictFuture = Pin<Box<dyn Future<Output = Result<crate::store::Verdict, Error>> + Send>>;

pin_project! {
    #[project = StateProj]
    enum State {
        Unsent { limiter: Limiter, check: Option<Check> },
        Sent { limiter: Limiter, check: Option<Check>, verdict: VerdictFuture, #[pin] deadline: Option<Sleep> },
    }
}

const POLLED_AGAIN: &str = "a future is not polled after it is ready";

impl Future for CheckFuture {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut this = self.as_mut().project();
            match this.state.as_mut().project() {
                StateProj::Unsent { limiter, check } => match limiter.send(check.take().expect(POLLED_AGAIN)) {
                    Ok(result) => return Poll::Ready(result),
                    Err(sent) => self.set(sent),
                },
                StateProj::Sent { limiter, check, verdict, mut deadline } => {
                    if let Poll::Ready(result) = verdict.as_mut().poll(cx) {
                        let check = check.take().expect(POLLED_AGAIN);
                        return Poll::Ready(result.map(|verdict| Decision::new(check, verdict)));
                    }
                    if deadline.is_none() {
                        // Counts from the first poll, for nothing is sent before it.
                        deadline.set(Some(tokio::time::sleep(limiter.store.deadline())));
                    }
                    ready!(deadline.as_pin_mut().expect("set above").poll(cx));
                    return Poll::Ready(Err(late(&*limiter.store)));
                }
            }
        }
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
