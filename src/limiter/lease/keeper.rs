//! The keeper of a lease: the task that requests its blocks and settles them.

use std::sync::Arc;

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    blocks::Ended,
    settle::{settle, settle_later, sweep},
    state::{Act, Asked, Step},
    table::LeaseId,
    waiter::Delivery,
};
use crate::{
    calls::Purpose,
    check::Check,
    hold::OpenHold,
    limiter::core::{Core, OneCall},
};

struct Keeper {
    core: Arc<Core>,
    id: LeaseId,
    wake: Arc<Notify>,
    /// Whether the lease has ended.
    is_done: bool,
}

/// Starts the keeper of a lease on the current runtime.
pub(super) fn start(core: &Arc<Core>, id: LeaseId, wake: Arc<Notify>) {
    let keeper = Keeper { core: Arc::clone(core), id, wake, is_done: false };
    tokio::spawn(keeper.run());
}

impl Keeper {
    async fn run(mut self) {
        loop {
            match self.core.leases.step(&self.id, Instant::now()) {
                None => break,
                Some(Step::Sleep(until)) => {
                    let _ = timeout_at(until, self.wake.notified()).await;
                }
                Some(Step::Act(Act { ended, deliveries, ask, is_over })) => {
                    deliveries.into_iter().for_each(Delivery::send);
                    drop(settle(&self.core, ended));
                    sweep(&self.core);
                    if let Some(units) = ask {
                        self.ask(units).await;
                    }
                    if is_over {
                        break;
                    }
                    // A store that answers at once must not keep the thread from the checks that were served.
                    tokio::task::yield_now().await;
                }
            }
        }
        self.is_done = true;
    }

    /// Requests a block.
    async fn ask(&self, units: u64) {
        let LeaseId { key, block_policy, .. } = &self.id;
        // From before the request, because the time-to-live counts from a later instant.
        let sent = Instant::now();
        let Ok(check) = Check::hold(key.clone(), block_policy, units).validated() else { return };
        let (Some(charge), Some((_, hold, _))) = (check.charges().first(), check.holds().next()) else { return };
        if !self.core.calls.may_take_blocks(charge) {
            return self.core.leases.decline(&self.id, sent).into_iter().for_each(Delivery::send);
        }
        let _busy = self.core.leases.busy();
        self.core.calls.held.request(key, block_policy, sent);
        let mut on_its_way = OnItsWay { core: &self.core, block: Some((hold.clone(), units)) };
        let deadline = self.core.calls.store.deadline();
        let call = OneCall::start(&self.core, &check, Purpose::CHECK, deadline);
        let result = call.answer(&self.core, &check, Purpose::CHECK, deadline).await;
        on_its_way.block = None;
        let may_be_held = match &result {
            Ok(verdict) => verdict.allowed && verdict.outcomes.first().is_some_and(|outcome| outcome.fits),
            Err(error) => error.may_have_charged(),
        };
        if !may_be_held {
            self.core.calls.held.end(key, block_policy);
        }
        if let Ok(verdict) = &result {
            self.core.calls.on_answer(verdict);
        }
        match self.core.leases.receive(&self.id, Asked { hold, units, sent }, result, Instant::now()) {
            Ok(deliveries) => deliveries.into_iter().for_each(Delivery::send),
            Err(ended) => drop(settle(&self.core, vec![ended])),
        }
    }
}

/// A block that was requested and not received. If the keeper's runtime ends meanwhile, the next use of the limiter
/// releases it, whether or not the store has made it.
struct OnItsWay<'a> {
    core: &'a Arc<Core>,
    block: Option<(OpenHold, u64)>,
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let Some((hold, units)) = self.block.take() {
            settle_later(self.core, vec![Ended { hold, units, spent: 0, is_uncertain: true }]);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.is_done {
            let remains = self.core.leases.abandon(&self.id, Instant::now());
            settle_later(&self.core, remains.into_ended());
        }
    }
}
