//! Leases: one hot key at the speed of memory.
//!
//! A check under a policy with a lease is spent from a block of units, if its key has one. Otherwise it goes to the
//! store as any check, and if its key is checked often, a lease is started: a keeper requests blocks as holds, each
//! before the last one is used up, and settles what was spent. Checks that come meanwhile wait for the block. Every
//! denial is the store's.

mod beside;
mod block;
mod blocks;
mod call;
mod close;
mod demand;
mod keeper;
mod meter;
mod settle;
mod size;
mod standing;
mod state;
mod store;
pub(super) mod table;
mod waiter;

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

pub(super) use self::{
    close::{give_back, release},
    store::judge,
};
use self::{state::Spent, waiter::Reply};
use crate::{
    check::Check,
    error::Error,
    limiter::{core::Core, purpose::Purpose, sharded::Asked},
    runtime::{deadline::within, stalls::Begin},
    verdict::Verdict,
};

/// Judges a check under a policy with a lease, without waiting for a block.
pub(super) fn try_ask(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Asked {
    match spend(core, check, purpose, false) {
        Spent::Now(verdict) => Asked::Judged(Ok(verdict)),
        Spent::Later(_) | Spent::Not => judge(core, check, purpose),
    }
}

/// Judges a check under a policy with a lease.
pub(super) fn ask(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Asked {
    match spend(core, check, purpose, true) {
        Spent::Now(verdict) => Asked::Judged(Ok(verdict)),
        Spent::Later(reply) => {
            let (core, check) = (Arc::clone(core), check.clone());
            Asked::Waiting(Box::pin(wait(core, check, purpose, reply)))
        }
        Spent::Not => judge(core, check, purpose),
    }
}

fn spend(core: &Arc<Core>, check: &Check, purpose: Purpose, may_wait: bool) -> Spent {
    let [charge] = check.charges() else { return Spent::Not };
    if charge.cost == 0 || charge.hold.is_some() {
        return Spent::Not;
    }
    // A check that is held back goes on to the store, so that it can become a probe.
    match core.keep_to_share(check, check, purpose) {
        Ok(_reserved) => core.leases.spend(charge, may_wait, Instant::now()),
        Err(_) => Spent::Not,
    }
}

/// Waits for a block, and asks the store if the block does not come or is too small.
async fn wait(
    core: Arc<Core>,
    check: Check,
    purpose: Purpose,
    reply: oneshot::Receiver<Reply>,
) -> Result<Verdict, Error> {
    let deadline = core.store.deadline();
    let begin = Begin::now(deadline);
    // The other half is for the store.
    match within(deadline / 2, reply).await {
        Some(Ok(Reply::Spent(verdict))) => return Ok(verdict),
        Some(Ok(Reply::Failed(error))) => return Err(error),
        Some(Ok(Reply::Ask) | Err(_)) => {}
        None => {
            if let [charge] = check.charges() {
                let remains = core.leases.give_up(&charge.key, &charge.policy, Instant::now());
                drop(settle::settle(&core, remains.into_ended()));
            }
        }
    }
    let waited = begin.map_or(Duration::ZERO, |begin| begin.running(Instant::now()));
    let left = store::whole_millis(deadline.saturating_sub(waited));
    store::judge_within(&core, &check, purpose, left).await
}
