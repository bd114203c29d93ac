//! A check of the limiter itself, which observers do not see: they see the call for which it is made.

use std::{future::poll_fn, sync::Arc};

use crate::{
    check::Check,
    decision::Decision,
    error::Error,
    limiter::{core::Core, detour, purpose::Purpose, sharded::Asked, waiting::Waiting},
    store::Answer,
    verdict::Verdict,
};

impl Core {
    /// Asks the store, behind the breaker and the deadline.
    pub(super) async fn ask(self: &Arc<Self>, mut check: Check, purpose: Purpose) -> Result<Decision, Error> {
        match self.verdict_on(&check, purpose).await {
            Ok(verdict) => {
                let observed = self.observer.as_ref().map(|observer| (observer, check.clone()));
                let decision = self.on_verdict(&mut check, &verdict, purpose, None);
                if let Some((observer, check)) = observed {
                    // One check may charge for several callers, and only the whole of it shows what it has reached.
                    let keys = check.charges().iter().map(|charge| &charge.key);
                    self.near_limits.report(&**observer, keys, &decision);
                }
                Ok(decision)
            }
            Err(error) => self.on_error(&check, error, purpose, None),
        }
    }

    async fn verdict_on(self: &Arc<Self>, check: &Check, purpose: Purpose) -> Result<Verdict, Error> {
        if !self.asks_directly(check) {
            return match detour::ask(self, check, purpose) {
                Asked::Judged(result) => result,
                Asked::Waiting(verdict) => verdict.await,
            };
        }
        match self.store.check(check) {
            Answer::Ready(result) => result,
            Answer::Pending(pending) => {
                let mut waiting = Waiting::new(self, pending, None);
                poll_fn(|cx| waiting.poll(self, check, purpose, cx)).await
            }
        }
    }
}
