//! Leases: one hot key at the speed of memory.
//!
//! A check under a policy with a lease is spent from a block of units, if its key has one. Otherwise it goes to the
//! store as any check, and if its key is checked often, a lease is started: a keeper requests blocks as holds, each
//! before the last one is used up, and settles what was spent. Checks that come meanwhile wait for the block. Every
//! denial is the store's.

mod blocks;
mod demand;
mod meter;
mod size;
mod state;
mod store;
pub(super) mod table;
mod waiter;

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, task::JoinHandle, time::Instant};

use self::{blocks::FinishedBlock, state::Spent, waiter::Reply};
use crate::{
    calls::{Calls, Purpose},
    check::{Check, open_hold::OpenHold},
    error::Error,
    fallback::Reservation,
    hold::SettleAnswer,
    key::Key,
    limiter::{core::Core, hold::SettleFuture},
    policy::Policy,
    runtime::{deadline::within, stalls::Budget},
    store::{Answer, Pending},
    verdict::Verdict,
};

pub(super) use self::store::{add_left, judge, on_cold_verdict};

/// Judges a check under a policy with a lease. `may_wait`: whether the caller can wait for a block. `is_cold` becomes
/// true if the answer is pending and the store's alone: see [`on_cold_verdict`].
pub(super) fn ask(
    core: &Arc<Core>,
    check: &Check,
    purpose: Purpose,
    may_wait: bool,
    is_cold: &mut bool,
) -> Answer<Verdict> {
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
        // The check takes its room again if the store is asked.
        Spent::Not => {
            drop(reserved);
            judge(core, check, purpose)
        }
        Spent::Cold => {
            drop(reserved);
            store::judge_cold(core, check, purpose, is_cold)
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
                drop(settle(&core, remains.into_ended()));
            }
        }
    }
    drop(reserved);
    let left = budget.left_after(budget.spent());
    store::judge_within(&core, &check, purpose, left).await
}

/// Settlements on their way.
type Given = Vec<JoinHandle<()>>;

/// Settles blocks: at once if the store answers at once, otherwise in the background.
///
/// A block is a hold, so a settlement without an answer is kept and sent again as that of any hold. A block that cannot
/// be settled is charged in full when it expires.
fn settle(core: &Arc<Core>, ended: Vec<FinishedBlock>) -> Given {
    let runtime = Handle::try_current().ok();
    let mut given = Given::new();
    for FinishedBlock { hold, units, spent, is_uncertain } in ended {
        let block = hold.clone();
        let settlement =
            SettleFuture::of_block(Arc::clone(&core.holds), runtime.clone(), hold, units, spent, is_uncertain);
        let mut settlement = Box::pin(settlement);
        // The first poll sends the settlement, so that it shares a call of the store with what is sent next.
        match (settlement.as_mut().poll(&mut Context::from_waker(Waker::noop())), &runtime) {
            (Poll::Ready(answer), _) => note(&core.calls, &block, is_uncertain, &answer),
            (Poll::Pending, Some(runtime)) => {
                let (busy, calls) = (core.leases.busy(), Arc::clone(&core.calls));
                given.push(runtime.spawn(async move {
                    let answer = settlement.await;
                    note(&calls, &block, is_uncertain, &answer);
                    drop(busy);
                }));
            }
            (Poll::Pending, None) => {}
        }
    }
    given
}

/// Settles blocks at once if the store answers at once, otherwise with the next use of the limiter: the runtime of
/// their keeper shuts down.
fn settle_later(core: &Arc<Core>, ended: Vec<FinishedBlock>) {
    for FinishedBlock { hold, units, spent, is_uncertain } in ended {
        // A settlement that is dropped before its first poll is sent in the background.
        drop(SettleFuture::of_block(Arc::clone(&core.holds), None, hold, units, spent, is_uncertain));
    }
}

/// Notes that the store does not hold a block any more. A hold of unknown fate may reach the store after its end.
fn note(calls: &Calls, block: &OpenHold, is_uncertain: bool, answer: &Result<SettleAnswer, Error>) {
    let is_over = match answer {
        Ok(SettleAnswer::Settled) => true,
        Ok(SettleAnswer::Expired | SettleAnswer::NotHeld) => !is_uncertain,
        Err(_) => false,
    };
    if is_over {
        calls.held.end(block);
    }
}

/// Settles the blocks of runtimes that stand still.
fn sweep(core: &Arc<Core>) {
    let ended = core.leases.sweep(Instant::now()).into_ended();
    if !ended.is_empty() {
        drop(settle(core, ended));
    }
}

/// The longest time that a close waits for blocks, and then for a store that does not answer, in its deadlines: a block
/// that is on its way is released, and once more when it has been received.
const LONGEST_CLOSE: u32 = 3;

/// Gives back all blocks, and waits until they and the ends of all holds have reached the store.
pub(in crate::limiter) async fn close(core: &Arc<Core>) {
    drop(settle(core, core.leases.close(Instant::now()).into_ended()));
    let time: Duration = core.calls.store.deadline().saturating_mul(LONGEST_CLOSE);
    // A keeper that stands still must not keep the ends of holds from their answers.
    let _ = within(time, core.leases.quiet()).await;
    core.holds.ends_answered(time).await;
}

/// Changes a count in a way that no block may outlast. Blocks are given back before it, with what was spent, and after
/// it, because checks may have taken blocks meanwhile.
pub(in crate::limiter) async fn change_without_blocks<T>(
    core: &Arc<Core>,
    key: &Key,
    policy: &Policy,
    change: impl Future<Output = T>,
) -> T {
    give_back(core, key, policy).await;
    let changed = change.await;
    give_back(core, key, policy).await;
    changed
}

/// Settles the blocks of a key before a call that needs all units of its count: a ban, a reset, or a charge of what
/// fits.
pub(in crate::limiter) async fn give_back(core: &Arc<Core>, key: &Key, policy: &Policy) {
    for settlement in settle(core, core.leases.forget(key, policy, Instant::now()).into_ended()) {
        // If the store does not answer, the call that follows reports it.
        let _ = within(core.calls.store.deadline(), settlement).await;
    }
}
