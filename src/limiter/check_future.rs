//! The future of a check whose caller handles errors itself.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    check::Check,
    decision::Decision,
    error::{ConfigError, Error},
    limiter::{
        ask::{Asked, WaitingCheck, ask, conclude},
        core::Core,
        purpose::Purpose,
    },
};

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
    purpose: Purpose,
    state: CheckState,
}

enum CheckState {
    Unsent {
        core: Arc<Core>,
        check: Check,
    },
    /// Boxed, so that the future of a check that need not wait is small.
    Waiting(Box<WaitingCheck>),
    /// The call was wrong: it asks for a local fallback that the limiter does not have.
    Failed(Error),
    Done,
}

impl CheckFuture {
    pub(super) fn new(purpose: Purpose, core: Arc<Core>, check: Check) -> Self {
        Self { purpose, state: CheckState::Unsent { core, check } }
    }

    /// Lets the limiter's [local fallback](crate::Limiter::with_local) judge if the store gives no verdict.
    ///
    /// If the limiter has no fallback, the result is an error of kind [`Config`](crate::ErrorKind::Config), also while
    /// the store is healthy, and nothing is charged.
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
            CheckState::Unsent { core, .. } if core.fallback.is_none() => {
                Self { state: CheckState::Failed(ConfigError::LocalWithoutFallback.into()), ..self }
            }
            _ => Self { purpose: self.purpose.with_fallback(), ..self },
        }
    }
}

impl Future for CheckFuture {
    type Output = Result<Decision, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let purpose = self.purpose;
        // A check that is answered at once ends here, without the state of a check that waits.
        if let CheckState::Unsent { core, check } = &mut self.state {
            match ask(core, check, purpose, None) {
                Asked::Answered(mut result, span) => {
                    self.state = CheckState::Done;
                    conclude(purpose, &mut result, span);
                    return Poll::Ready(result);
                }
                Asked::Waiting(check) => self.state = CheckState::Waiting(Box::new(check)),
            }
        }
        let (mut result, span) = match &mut self.state {
            CheckState::Waiting(check) => (ready!(check.poll(purpose, cx)), check.take_span()),
            CheckState::Failed(error) => (Err(error.clone()), None),
            CheckState::Unsent { .. } | CheckState::Done => {
                panic!("a CheckFuture was polled after it had returned its result")
            }
        };
        self.state = CheckState::Done;
        conclude(purpose, &mut result, span);
        Poll::Ready(result)
    }
}

impl fmt::Debug for CheckFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckFuture")
    }
}
