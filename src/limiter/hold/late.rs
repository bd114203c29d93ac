//! Settlements that come too late: the store has ended the hold before, and has charged what its policy says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, atomic::Ordering};
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;

use crate::limiter::hold::{age::Ending, ends::SharedHolds, is_released};
use crate::{check::Charge, store::CountChange};

/// A charge of units that a settlement was too late for. It is sent once, because a charge by hand is not idempotent.
struct LateCharge {
    shared: Arc<SharedHolds>,
    charge: Charge,
    is_charged: bool,
}

impl LateCharge {
    async fn run(mut self) {
        let Charge { key, policy, cost, .. } = &self.charge;
        self.is_charged = self.shared.calls.change_count(key, policy, CountChange::Record(*cost)).await.is_ok();
    }
}

impl Drop for LateCharge {
    fn drop(&mut self) {
        match self.is_charged {
            true => {
                if let Some(fallback) = &self.shared.calls.fallback {
                    fallback.mirror(std::iter::once(&self.charge));
                }
                self.shared.waiters.charged_late(&self.charge.key, &self.charge.policy);
            }
            // Refused, of unknown fate, or never sent.
            false => {
                self.shared.ends.given_up.fetch_add(1, Ordering::Relaxed);
                self.shared.ends.look_soon();
            }
        }
    }
}

impl SharedHolds {
    /// Charges what a late settlement has above the units that the store has charged at the end of its hold, whether or
    /// not they fit. The caller knows that no earlier attempt has settled the hold.
    ///
    /// Destructors call this, also while a request unwinds. So a panic of the store is contained.
    pub(super) fn charge_late(self: &Arc<Self>, ending: &Ending) {
        let charged = if is_released(&ending.hold) { 0 } else { ending.held };
        let late = ending.actual.saturating_sub(charged);
        if late == 0 || ending.is_uncertain {
            return;
        }
        let charge = Charge::new(ending.hold.key.clone(), ending.hold.policy.clone(), late);
        let late = LateCharge { shared: Arc::clone(self), charge, is_charged: false };
        let mut call: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(late.run());
        // A store in this process answers at once, also outside of a runtime.
        let answer = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        if let (Ok(Poll::Pending), Ok(runtime)) = (answer, Handle::try_current()) {
            drop(runtime.spawn(call));
        }
    }
}
