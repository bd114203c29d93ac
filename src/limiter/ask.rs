//! A check of the limiter itself, which observers do not see: they see the call for which it is made.

use std::{future::poll_fn, sync::Arc};

use crate::{
    calls::Purpose,
    check::Check,
    decision::Decision,
    error::Error,
    limiter::{core::Core, waiting::Waiting},
    store::Answer,
};

impl Core {
    /// Asks the store, behind the breaker and the deadline.
    pub(super) async fn ask(self: &Arc<Self>, check: Check, purpose: Purpose) -> Result<Decision, Error> {
        self.ask_from(&mut None, check, purpose).await
    }

    /// As [`ask`](Self::ask). The check waits in `place`, so that a caller whose future is dropped knows whether the
    /// store may have received it.
    pub(super) async fn ask_from(
        self: &Arc<Self>,
        place: &mut Option<Waiting>,
        mut check: Check,
        purpose: Purpose,
    ) -> Result<Decision, Error> {
        let route = self.route(&check);
        let result = match self.send(route, &check, purpose, true) {
            Answer::Ready(result) => result,
            Answer::Pending(pending) => {
                let waiting = place.insert(Waiting::new(self, route, pending, None));
                let result = poll_fn(|cx| waiting.poll(self, &check, purpose, cx)).await;
                *place = None;
                result
            }
        };
        match result {
            Ok(verdict) => {
                let observed = self.calls.observer.as_ref().map(|observer| (observer, check.clone()));
                let decision = self.on_verdict(&mut check, &verdict, purpose, None);
                if let Some((observer, check)) = observed {
                    // One check may charge for several callers, and only the whole of it shows what it has reached.
                    let keys = check.charges().iter().map(|charge| &charge.key);
                    self.calls.near_limits.report(&**observer, keys, &decision);
                }
                Ok(decision)
            }
            Err(error) => self.on_error(&check, error, purpose, None),
        }
    }
}
