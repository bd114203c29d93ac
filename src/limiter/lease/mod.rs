//! Leases: one hot key at the speed of memory.
//!
//! A check under a policy with a lease is spent from a block of units, if its key has one. Otherwise it goes to the
//! store as any check, and if its key is checked often, a lease is started: a keeper requests blocks as holds, each
//! before the last one is used up, and settles what was spent. Checks that come meanwhile wait for the block. Every
//! denial is the store's.

mod blocks;
mod settle;
mod size;
mod state;
mod store;
pub(super) mod table;
mod waiter;

use std::sync::Arc;

use tokio::{sync::oneshot, time::Instant};

pub(super) use self::{
    settle::{close, give_back, release},
    store::{add_left, judge},
};
use self::{state::Spent, waiter::Reply};
use crate::{
    calls::Purpose,
    check::Check,
    error::Error,
    fallback::Reservation,
    limiter::core::Core,
    runtime::{deadline::within, stalls::Budget},
    store::{Answer, Pending},
    verdict::Verdict,
};

/// Judges a check under a policy with a lease. `may_wait`: whether the caller can wait for a block.
pub(super) fn ask(core: &Arc<Core>, check: &Check, purpose: Purpose, may_wait: bool) -> Answer<Verdict> {
    let [charge] = check.charges() else { return judge(core, check, purpose) };
    if charge.cost == 0 || charge.hold.is_some() {
        return judge(core, check, purpose);
    }
    // A check that is held back goes on to the store, so that it can become a probe.
    let Ok(reserved) = core.calls.keep_to_share(check, check, purpose) else { return judge(core, check, purpose) };
    let mut counted = Ok(());
    let count = || counted = core.calls.on_spent(charge, purpose);
    match core.leases.spend(charge, may_wait, Instant::now(), count) {
        Spent::Now(verdict) => Answer::Ready(counted.map(|()| verdict)),
        Spent::Later(reply) => {
            let (core, check) = (Arc::clone(core), check.clone());
            Answer::Pending(Pending::new(wait(core, check, purpose, reserved, reply)))
        }
        Spent::Not => {
            // The check takes its room again if the store is asked.
            drop(reserved);
            judge(core, check, purpose)
        }
    }
}

/// Waits for a block, and asks the store if the block does not come or is too small. Room of the share is `reserved`
/// for the units meanwhile.
async fn wait(
    core: Arc<Core>,
    check: Check,
    purpose: Purpose,
    reserved: Option<Box<Reservation>>,
    reply: oneshot::Receiver<Reply>,
) -> Result<Verdict, Error> {
    let deadline = core.calls.store.deadline();
    let budget = Budget::of(deadline);
    // The other half is for the store.
    match within(deadline / 2, reply).await {
        Some(Ok(Reply::Spent(verdict))) => {
            check.charges().iter().try_for_each(|charge| core.calls.on_spent(charge, purpose))?;
            return Ok(verdict);
        }
        Some(Ok(Reply::Failed(error))) => return Err(error),
        Some(Ok(Reply::Ask) | Err(_)) => {}
        None => {
            if let [charge] = check.charges() {
                let remains = core.leases.give_up(&charge.key, &charge.policy, Instant::now());
                drop(settle::settle(&core, remains.into_ended()));
            }
        }
    }
    drop(reserved);
    let left = budget.left_after(budget.spent());
    store::judge_within(&core, &check, purpose, left).await
}
