//! Requests whose holds reach their longest age.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use super::bill::WeakBill;
use crate::{
    limiter::{Charged, OnLongest},
    policy::Policy,
};

/// A hold of a request has reached its [longest age](crate::policy::HoldSettings::with_longest), so the request has
/// ended.
///
/// The error of a [`HeldBody`](super::HeldBody) whose client has not got all of its response by then, as a boxed error.
/// Its message names the policy and the longest age.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldTooLong {
    pub(in crate::middleware) policy: String,
    pub(in crate::middleware) longest: Duration,
}

impl fmt::Display for HeldTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request took longer than the {:?} for which policy {:?} holds units", self.longest, self.policy)
    }
}

impl std::error::Error for HeldTooLong {}

/// What a request and the limiter tell each other about the age of its holds.
#[derive(Debug)]
pub(super) struct Longest {
    bill: WeakBill,
    is_answered: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The hold that was too old.
    ended: Option<HeldTooLong>,
    /// The task that polls the response or its body.
    waker: Option<Waker>,
}

impl Longest {
    pub(super) fn new(bill: WeakBill) -> Arc<Self> {
        Arc::new(Self { bill, is_answered: AtomicBool::new(false), state: Mutex::default() })
    }

    /// Notes that the service has answered.
    pub(super) fn answered(&self) {
        self.is_answered.store(true, Ordering::Release);
    }

    /// Which hold was too old. If none was, the task is woken when one is.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Option<HeldTooLong> {
        let mut state = self.state();
        if state.ended.is_none() && !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        state.ended.clone()
    }

    /// A waker is cloned under the lock, and each change is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnLongest for Longest {
    fn charged(&self, policy: &Policy) -> Charged {
        let unset = if self.is_answered.load(Ordering::Acquire) { Charged::Held } else { Charged::AsUnsettled };
        self.bill.cost_of(policy.name()).map_or(unset, Charged::Units)
    }

    fn on_ended(&self, policy: &Policy) {
        // A shadow policy refuses nothing.
        if policy.is_shadow() {
            return;
        }
        let waker = {
            let mut state = self.state();
            let longest = policy.holds().and_then(|holds| holds.longest()).unwrap_or_default();
            state.ended.get_or_insert_with(|| HeldTooLong { policy: policy.name().to_owned(), longest });
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
