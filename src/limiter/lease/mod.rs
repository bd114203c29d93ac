//! Leases: one hot key at the speed of memory.
//!
//! A check under a policy with a lease is spent from a block of units, if its key has one. Otherwise it goes to the
//! store as any check, and if its key is checked often, a lease is started: a keeper requests blocks as holds, each
//! before the last one is used up, and settles what was spent. Checks that come meanwhile wait for the block. Every
//! denial is the store's.

mod block;
mod blocks;
mod close;
mod demand;
mod keeper;
mod settle;
mod size;
mod standing;
mod state;
mod store;
pub(super) mod table;
mod waiter;

use std::sync::Arc;

use tokio::{sync::oneshot, time::Instant};

pub(super) use self::{
    close::{close, give_back, release},
    store::judge,
};
use self::{state::Spent, waiter::Reply};
use crate::{
    calls::Purpose,
    check::Check,
    error::Error,
    limiter::core::Core,
    runtime::{deadline::within, stalls::Budget},
    store::{Answer, Pending},
    verdict::Verdict,
};

/// Judges a check under a policy with a lease. `may_wait`: whether the caller can wait for a block.
pub(super) fn ask(core: &Arc<Core>, check: &Check, purpose: Purpose, may_wait: bool) -> Answer<Verdict> {
    match spend(core, check, purpose, may_wait) {
        Spent::Now(verdict) => Answer::Ready(Ok(verdict)),
        Spent::Later(reply) => {
            let (core, check) = (Arc::clone(core), check.clone());
            Answer::Pending(Pending::new(wait(core, check, purpose, reply)))
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
    match core.calls.keep_to_share(check, check, purpose) {
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
    let deadline = core.calls.store.deadline();
    let budget = Budget::of(deadline);
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
    let left = budget.left_after(budget.spent());
    store::judge_within(&core, &check, purpose, left).await
}
