//! Settling blocks: telling the store what was spent.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Waker},
};

use tokio::{runtime::Handle, task::JoinHandle};

use super::block::Ended;
use crate::limiter::{core::Core, hold::SettleFuture};

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
        let settlement = SettleFuture::of_block(Arc::clone(core), runtime.clone(), hold, units, spent, is_uncertain);
        let mut settlement = Box::pin(settlement);
        // The first poll sends the settlement, so that it shares a call of the store with what is sent next.
        let first = settlement.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if let (true, Some(runtime)) = (first.is_pending(), &runtime) {
            let busy = core.leases.busy();
            given.push(runtime.spawn(async move {
                let _busy = busy;
                let _ = settlement.await;
            }));
        }
    }
    given
}
