//! One call of the store for a check, beside the blocks that this process holds.

use std::{sync::Arc, time::Duration};

use crate::{
    check::Check,
    error::Error,
    limiter::{
        core::Core,
        purpose::Purpose,
        sharded::{self, Asked, Judgement},
    },
    store::{Answer, Pending},
    verdict::Verdict,
};

/// One call of the store, or of two shards of a policy.
pub(super) enum Call {
    Judged(Result<Verdict, Error>),
    Store {
        /// What the store gets, if it is not the check itself.
        beside: Option<Check>,
        pending: Pending<Verdict>,
    },
    Shards(Judgement),
}

impl Call {
    /// Asks the store. What has to wait is sent at its first poll.
    pub(super) fn start(core: &Arc<Core>, check: &Check, purpose: Purpose, time: Duration) -> Self {
        let beside = core.leases.beside_blocks(check);
        let sent = beside.as_ref().unwrap_or(check);
        if sent.is_sharded() {
            return match sharded::ask(core, sent, purpose, time) {
                Asked::Judged(result) => Self::Judged(result),
                Asked::Waiting(judgement) => Self::Shards(judgement),
            };
        }
        match core.store.check(sent) {
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
                sharded::answer(core, sent, check, purpose, pending, time).await
            }
            Self::Shards(judgement) => judgement.await,
        }
    }
}
