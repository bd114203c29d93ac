//! One call of the store for a check, beside the blocks that this process holds.

use std::{sync::Arc, time::Duration};

use crate::{
    calls::{CheckCall, Purpose},
    check::Check,
    error::Error,
    limiter::{core::Core, sharded},
    store::{Answer, Pending},
    verdict::Verdict,
};

/// One call of the store, or of two shards of a policy.
pub(super) enum OneCall {
    Judged(Result<Verdict, Error>),
    Store {
        /// What the store gets, if it is not the check itself.
        beside: Option<Check>,
        pending: Pending<Verdict>,
    },
    Shards(Pending<Verdict>),
}

impl OneCall {
    /// Asks the store. What has to wait is sent at its first poll.
    pub(super) fn start(core: &Arc<Core>, check: &Check, purpose: Purpose, time: Duration) -> Self {
        let beside = core.calls.held.check_beside(check);
        let sent = beside.as_ref().unwrap_or(check);
        if sent.is_sharded() {
            return match sharded::ask(&core.calls, &core.turns, sent, purpose, time) {
                Answer::Ready(result) => Self::Judged(result),
                Answer::Pending(pending) => Self::Shards(pending),
            };
        }
        match core.calls.store.check(sent) {
            Answer::Ready(result) => Self::Judged(result),
            Answer::Pending(pending) => Self::Store { beside, pending },
        }
    }

    /// The answer, behind the breaker and within `time`.
    pub(super) async fn answer(
        self,
        core: &Arc<Core>,
        check: &Check,
        purpose: Purpose,
        time: Duration,
    ) -> Result<Verdict, Error> {
        match self {
            Self::Judged(result) => result,
            Self::Store { beside, pending } => {
                let sent = beside.as_ref().unwrap_or(check);
                CheckCall::new(pending).within(time).answer(&core.calls, sent, check, purpose).await
            }
            Self::Shards(pending) => pending.await,
        }
    }
}
