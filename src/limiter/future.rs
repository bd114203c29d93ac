//! A check under way.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{Limiter, guarded::Guarded};
use crate::{
    breaker::CallOutcome,
    check::Check,
    decision::Decision,
    error::{ConfigError, Error},
    failure::FailurePolicy,
    observe::CheckSpan,
    store::Pending,
    verdict::Verdict,
};

/// The future of a [`Decision`], returned by [`Limiter::check`].
#[must_use = "nothing is charged before it is polled"]
pub struct CheckFuture {
    purpose: Purpose,
    /// What the caller makes of an error, if that is known.
    failure: Option<FailurePolicy>,
    state: State,
    span: Option<Box<CheckSpan>>,
}

impl CheckFuture {
    pub(super) fn unsent(purpose: Purpose, limiter: Limiter, check: Check) -> Self {
        Self { purpose, failure: None, state: State::Unsent { limiter, check }, span: None }
    }

    pub(super) fn sent(
        purpose: Purpose,
        failure: Option<FailurePolicy>,
        limiter: Limiter,
        check: Check,
        verdict: Pending<Verdict>,
        span: Option<Box<CheckSpan>>,
    ) -> Self {
        let verdict = Guarded::new(verdict, CallOutcome::of_verdict);
        Self { purpose, failure, state: State::Sent { limiter, check, verdict }, span }
    }

    /// Lets the limiter's [local fallback](Limiter::with_local) judge if the store gives no verdict.
    ///
    /// Without a fallback the result is an error of kind [`Config`](crate::ErrorKind::Config), also while the store is well, and nothing is
    /// charged.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = MemoryStore::new();
    /// let limiter = Limiter::new(store).with_local(MemoryStore::new(), 8)?;
    /// let quota = Policy::per_day("quota", 9_500)?;
    /// let decision = limiter.check("key1", &quota, 100).fail_local().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_local(self) -> Self {
        match &self.state {
            State::Unsent { limiter, .. } if !limiter.has_fallback() => {
                Self { state: State::Failed(ConfigError::LocalWithoutFallback.into()), ..self }
            }
            _ => Self { purpose: self.purpose.or_local(), ..self },
        }
    }
}

impl Future for CheckFuture {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let Self { purpose, failure, state, span } = &mut *self;
            let (purpose, failure) = (*purpose, *failure);
            let mut result = match state {
                State::Unsent { limiter, check } => match limiter.send(check, purpose, None) {
                    Sent::Decided(result) => result,
                    Sent::Waiting(waiting) => {
                        *self = waiting;
                        continue;
                    }
                },
                State::Sent { limiter, check, verdict } => {
                    if let Some(span) = span {
                        span.waits();
                    }
                    let admit = |pending: &Pending<Verdict>| {
                        limiter.cautiously(check, purpose)?;
                        // A check of several parts asks the breaker of each by itself.
                        if pending.takes_over(limiter.breakers()) { Ok(None) } else { limiter.admit(check.first_key()) }
                    };
                    let result = ready!(verdict.poll(limiter, admit, cx));
                    limiter.conclude(check, result, purpose, failure, span.as_deref())
                }
                State::Failed(error) => Err(error.clone()),
                State::Done => panic!("{POLLED_AGAIN}"),
            };
            if purpose.is_peek()
                && let Ok(decision) = &mut result
            {
                decision.answer_peek();
            }
            self.state = State::Done;
            if let Some(span) = self.span.take() {
                span.end(&result);
            }
            return Poll::Ready(result);
        }
    }
}

const POLLED_AGAIN: &str = "a future is not polled after it is ready";

impl fmt::Debug for CheckFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckFuture")
    }
}

/// A check that the store has.
pub(crate) enum Sent {
    Decided(Result<Decision, Error>),
    Waiting(CheckFuture),
}

/// What a check is made for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    Check,
    /// The fallback answers where the store does not.
    CheckOrLocal,
    /// To tell the store what the fallback has admitted.
    Debit,
    /// To find out whether a cost of 1 would pass. The store is asked with a cost of 0, which charges nothing.
    Peek,
    /// The same, and the fallback answers where the store does not.
    PeekOrLocal,
}

impl Purpose {
    fn or_local(self) -> Self {
        match self {
            Self::Check | Self::CheckOrLocal => Self::CheckOrLocal,
            Self::Debit => Self::Debit,
            Self::Peek | Self::PeekOrLocal => Self::PeekOrLocal,
        }
    }

    /// Whether the fallback answers where the store does not.
    pub(super) fn is_local(self) -> bool {
        matches!(self, Self::CheckOrLocal | Self::PeekOrLocal)
    }

    pub(super) fn is_peek(self) -> bool {
        matches!(self, Self::Peek | Self::PeekOrLocal)
    }
}

impl From<FailurePolicy> for Purpose {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Closed | FailurePolicy::Open => Self::Check,
            FailurePolicy::Local => Self::CheckOrLocal,
        }
    }
}

enum State {
    Unsent {
        limiter: Limiter,
        check: Check,
    },
    /// The store does not have the answer at hand.
    Sent {
        limiter: Limiter,
        check: Check,
        verdict: Guarded<Verdict>,
    },
    /// It could never be judged as it was asked for.
    Failed(Error),
    Done,
}
