//! Giving blocks and ends of holds to the store before the process ends; giving blocks back before a reset.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{blocks::Ended, settle::settle};
use crate::{key::Key, limiter::core::Core, policy::Policy, runtime::deadline::within};

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
