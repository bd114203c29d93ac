//! Settling blocks: telling the store what was spent, before a reset, and with the ends of holds before the process
//! ends.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinHandle, time::Instant};

use super::blocks::Ended;
use crate::{
    calls::Calls,
    error::Error,
    hold::SettleAnswer,
    key::Key,
    limiter::{core::Core, hold::SettleFuture},
    policy::Policy,
    runtime::deadline::within,
};

/// Settlements on their way.
pub(super) type Given = Vec<JoinHandle<()>>;

/// Settles blocks: at once if the store answers at once, otherwise in the background.
///
/// A block is a hold, so a settlement without an answer is kept and sent again as that of any hold. A block that cannot
/// be settled is charged in full when it expires.
pub(super) fn settle(core: &Arc<Core>, ended: Vec<Ended>) -> Given {
    let runtime = Handle::try_current().ok();
    let mut given = Given::new();
    for Ended { hold, units, spent, is_uncertain } in ended {
        let block = (hold.key.clone(), hold.policy.clone());
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
pub(super) fn settle_later(core: &Arc<Core>, ended: Vec<Ended>) {
    for Ended { hold, units, spent, is_uncertain } in ended {
        // A settlement that is dropped before its first poll is sent in the background.
        drop(SettleFuture::of_block(Arc::clone(&core.holds), None, hold, units, spent, is_uncertain));
    }
}

/// Notes that the store does not hold a block any more. A hold of unknown fate may reach the store after its end.
fn note(calls: &Calls, (key, policy): &(Key, Policy), is_uncertain: bool, answer: &Result<SettleAnswer, Error>) {
    let is_over = match answer {
        Ok(SettleAnswer::Settled) => true,
        Ok(SettleAnswer::Expired | SettleAnswer::NotHeld) => !is_uncertain,
        Err(_) => false,
    };
    if is_over {
        calls.held.end(key, policy);
    }
}

/// Settles the blocks of runtimes that stand still.
pub(super) fn sweep(core: &Arc<Core>) {
    let remains = core.leases.sweep(Instant::now());
    drop(settle(core, remains.into_ended()));
}

/// The longest time that a close waits for a store that does not answer, in its deadlines: a block that is on its way
/// is received and then released.
const LONGEST_CLOSE: u32 = 3;

/// Gives back all blocks, and waits until they and the ends of all holds have reached the store.
pub(in crate::limiter) async fn close(core: &Arc<Core>) {
    let ended = core.leases.close(Instant::now()).into_ended();
    drop(settle(core, ended));
    let time: Duration = core.calls.store.deadline().saturating_mul(LONGEST_CLOSE);
    if within(time, core.leases.quiet()).await.is_some() {
        core.holds.ends_answered(time).await;
    }
}

/// Releases the blocks of a key, whose count is about to be reset.
pub(in crate::limiter) async fn release(core: &Arc<Core>, key: &Key, policy: &Policy) {
    end_blocks(core, key, policy, |ended| Ended { spent: 0, ..ended }).await;
}

/// Settles the blocks of a key, which is about to be banned.
pub(in crate::limiter) async fn give_back(core: &Arc<Core>, key: &Key, policy: &Policy) {
    end_blocks(core, key, policy, |ended| ended).await;
}

async fn end_blocks(core: &Arc<Core>, key: &Key, policy: &Policy, change: fn(Ended) -> Ended) {
    let ended = core.leases.forget(key, policy, Instant::now()).into_ended();
    for settlement in settle(core, ended.into_iter().map(change).collect()) {
        // If the store does not answer, the call that follows reports it.
        let _ = within(core.calls.store.deadline(), settlement).await;
    }
}
