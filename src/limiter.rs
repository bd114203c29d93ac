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
    failure::{Circuit, Permit, Signal},
    key::Key,
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
    circuit: Option<Arc<Circuit>>,
}

impl Limiter {
    /// Creates a limiter over `store`, with the [`Breaker`](crate::Breaker) that the store asks for. No I/O happens
    /// before the first check.
    pub fn new(store: impl Store) -> Self {
        let circuit = store.breaker().map(|breaker| Arc::new(Circuit::new(breaker, store.deadline())));
        Self { store: Arc::new(store), circuit }
    }

    /// Whether the [`Breaker`](crate::Breaker) keeps checks from the store right now.
    pub fn is_breaker_open(&self) -> bool {
        self.circuit.as_ref().is_some_and(|circuit| circuit.is_open())
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
                let permit = self.admit()?;
                let deadline = self.store.deadline();
                let result = tokio::time::timeout(deadline, future).await;
                let result = result.unwrap_or_else(|_| Err(late(&*self.store)));
                self.settle(permit, &result);
                result
            }
        }
    }

    /// Sends the check: the decision itself where the store knows it at once, otherwise the future of it.
    /// Takes the charges out of it.
    pub(crate) fn send(&self, check: &mut Check) -> Sent {
        match self.store.check(check) {
            Answer::Ready(verdict) => Sent::Decided(verdict.map(|verdict| Decision::new(check, verdict))),
            Answer::Pending(verdict) => {
                let check = std::mem::replace(check, Check::empty());
                Sent::Waiting(CheckFuture { state: State::Ready { limiter: self.clone(), check, verdict } })
            }
        }
    }

    /// Asks the breaker. Answers that are there at once are not its business.
    fn admit(&self) -> Result<Option<Permit>, Error> {
        self.circuit.as_ref().map(Circuit::admit).transpose()
    }

    fn settle<T>(&self, permit: Option<Permit>, result: &Result<T, Error>) {
        if let (Some(circuit), Some(permit)) = (&self.circuit, permit) {
            circuit.settle(permit, Signal::of(result));
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("store", &self.store).field("circuit", &self.circuit).finish()
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
    Unsent {
        limiter: Limiter,
        check: Check,
    },
    /// The store does not have the answer at hand, and has not been asked for it.
    Ready {
        limiter: Limiter,
        check: Check,
        verdict: PendingVerdict,
    },
    Sent {
        limiter: Limiter,
        check: Check,
        permit: Option<Permit>,
        verdict: PendingVerdict,
        deadline: Option<Pin<Box<Sleep>>>,
    },
    Done,
}

type PendingVerdict = Pin<Box<dyn Future<Output = Result<Verdict, Error>> + Send>>;

impl Future for CheckFuture {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let result = match &mut self.state {
                State::Unsent { limiter, check } => match limiter.send(check) {
                    Sent::Decided(result) => result,
                    Sent::Waiting(waiting) => {
                        *self = waiting;
                        continue;
                    }
                },
                // Not before it is polled: a probe that nobody polls would keep the others from asking.
                State::Ready { limiter, .. } => match limiter.admit() {
                    Ok(permit) => {
                        self.state = std::mem::replace(&mut self.state, State::Done).sent(permit);
                        continue;
                    }
                    Err(error) => Err(error),
                },
                State::Sent { limiter, check, permit, verdict, deadline } => {
                    let result = match verdict.as_mut().poll(cx) {
                        Poll::Ready(result) => result,
                        Poll::Pending => {
                            // Counts from the first poll, for nothing is sent before it.
                            let sleep = || Box::pin(tokio::time::sleep(limiter.store.deadline()));
                            ready!(deadline.get_or_insert_with(sleep).as_mut().poll(cx));
                            Err(late(&*limiter.store))
                        }
                    };
                    limiter.settle(permit.take(), &result);
                    result.map(|verdict| Decision::new(check, verdict))
                }
                State::Done => panic!("{POLLED_AGAIN}"),
            };
            self.state = State::Done;
            return Poll::Ready(result);
        }
    }
}

impl State {
    fn sent(self, permit: Option<Permit>) -> Self {
        match self {
            Self::Ready { limiter, check, verdict } => Self::Sent { limiter, check, permit, verdict, deadline: None },
            other => other,
        }
    }
}

const POLLED_AGAIN: &str = "a future is not polled after it is ready";

impl fmt::Debug for CheckFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckFuture")
    }
}

fn late(store: &dyn Store) -> Error {
    Error::new(ErrorKind::Deadline, format!("no answer within {:?}", store.deadline())).charge_unknown()
}
