//! A check of the limiter itself, which observers do not see: they see the call for which it is made.

use std::{future::poll_fn, sync::Arc};

use crate::{
    check::Check,
    decision::Decision,
    error::Error,
    limiter::{core::Core, purpose::Purpose, waiting::Waiting},
    store::Answer,
};

impl Core {
    /// Asks the store once, behind the breaker and the deadline.
    pub(super) async fn ask(self: &Arc<Self>, mut check: Check, purpose: Purpose) -> Result<Decision, Error> {
        let result = match self.store.check(&check) {
            Answer::Ready(result) => result,
            Answer::Pending(pending) => {
                let mut waiting = Waiting::new(pending, None);
                poll_fn(|cx| waiting.poll(self, &check, purpose, cx)).await
            }
        };
        match result {
            Ok(verdict) => Ok(self.on_verdict(&mut check, &verdict, purpose, None)),
            Err(error) => self.on_error(&check, error, purpose, None),
        }
    }
}
