//! Holds of requests: made before the service runs, settled when its response says so or its body has ended.
//!
//! This file has the holds of a request, `bill` what the handler says about its cost, `guard` what the response says
//! and how work that outlives the request keeps the rest, and `body` how a response body carries it.

mod bill;
mod body;
mod guard;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::{fmt, time::Duration};

use http::{Method, StatusCode, response::Parts};

use self::bill::WeakBill;
use crate::limiter::{Charged, OnLongest, RequestHolds};
use crate::{decision::Decision, policy::Policy};

pub use self::{
    bill::Bill,
    body::{HeldBody, WrappedBody},
    guard::{HoldGuard, Settlement},
};
pub(super) use self::{body::CarryHolds, guard::Settling};

/// The holds of a request, settled at the latest when this is dropped.
pub struct Tab {
    holds: RequestHolds,
    bill: Bill,
    settling: Option<Settling>,
    method: Verb,
    stage: Stage,
    /// If a hold may get too old.
    longest: Option<Arc<Longest>>,
}

/// How far a request has come.
#[derive(Clone, Copy)]
enum Stage {
    /// The store has not been asked for the holds, or the tab has nothing to end.
    NotAsked,
    Asked,
    /// The holds are made. The service has the request.
    Forwarded,
    /// The service has answered.
    Answered,
}

/// What the method of a request says about the body of its response.
#[derive(Clone, Copy, PartialEq)]
enum Verb {
    Connect,
    Head,
    Other,
}

impl Tab {
    pub(crate) fn new(holds: RequestHolds, bill: Bill, settling: Option<Settling>, method: &Method) -> Self {
        let method = match *method {
            Method::CONNECT => Verb::Connect,
            Method::HEAD => Verb::Head,
            _ => Verb::Other,
        };
        Self { holds, bill, settling, method, stage: Stage::NotAsked, longest: None }
    }

    /// Notes that the store is asked. If the request goes away without a verdict, the holds that it may have made end
    /// as those of a request that fails.
    pub(crate) fn ask(&mut self) {
        self.stage = Stage::Asked;
    }

    /// The first policy of the holds that is an enforced concurrency limit.
    pub(crate) fn slot(&self) -> Option<&Policy> {
        self.holds.policies().find(|policy| policy.is_concurrent() && !policy.is_shadow())
    }

    /// Keeps the holds that the check has made.
    pub(crate) fn keep_holds_of(&mut self, decision: &Decision) {
        let Self { holds, bill, longest, .. } = self;
        holds.keep_holds_of(decision, || {
            let request = longest.insert(Longest::new(bill.downgrade()));
            Arc::clone(request) as _
        });
        self.stage = Stage::Forwarded;
    }

    /// Whether a hold may get too old.
    pub(crate) fn can_get_too_old(&self) -> bool {
        self.longest.is_some()
    }

    /// Which hold was too old. If none was, the task is woken when one is.
    pub(crate) fn poll_too_old(&self, cx: &Context<'_>) -> Option<HeldTooLong> {
        self.longest.as_ref()?.poll(cx)
    }

    /// Settles what the response decides. Returns the rest, which ends with the body of the response. `is_end` says
    /// whether the body is at its end.
    pub(crate) fn respond(mut self: Box<Self>, response: &Parts, is_end: bool) -> Option<Box<Self>> {
        let this = &mut *self;
        if let Some(longest) = &this.longest {
            longest.answered();
        }
        if let Some(settling) = &this.settling {
            settling.settle(response, &mut this.holds);
        }
        self.stage = Stage::Answered;
        if self.holds.is_empty() {
            return None;
        }
        let upgrades = match self.method {
            Verb::Connect => response.status.is_success(),
            Verb::Head | Verb::Other => response.status == StatusCode::SWITCHING_PROTOCOLS,
        };
        if upgrades {
            self.leave_to_bill();
            return None;
        }
        let has_no_body = matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        // Otherwise dropped here, which settles the rest.
        (!is_end && !has_no_body && self.method != Verb::Head).then_some(self)
    }
}

impl Tab {
    /// Forgets the holds of a check that was not allowed.
    pub(crate) fn discard(mut self) {
        self.stage = Stage::NotAsked;
    }

    /// Leaves the holds to the last clone of the bill.
    fn leave_to_bill(mut self) {
        self.stage = Stage::NotAsked;
        self.bill.keep(self.holds.take());
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        match self.stage {
            Stage::NotAsked => {}
            // No handler has seen the request, so no work can go on.
            Stage::Asked => self.bill.end(self.holds.take(), Charged::AsUnsettled),
            Stage::Forwarded => self.bill.end_after_guards(self.holds.take(), Charged::AsUnsettled),
            Stage::Answered => self.bill.end_after_guards(self.holds.take(), Charged::Held),
        }
    }
}

impl fmt::Debug for Tab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tab").field("holds", &self.holds).field("bill", &self.bill).finish_non_exhaustive()
    }
}

/// A hold of a request has reached its [longest age](crate::policy::HoldSettings::with_longest), so the request has
/// ended.
///
/// The error of a [`HeldBody`] whose client has not got all of its response by then, as a boxed error.
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
struct Longest {
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
    fn new(bill: WeakBill) -> Arc<Self> {
        Arc::new(Self { bill, is_answered: AtomicBool::new(false), state: Mutex::default() })
    }

    /// Notes that the service has answered.
    fn answered(&self) {
        self.is_answered.store(true, Ordering::Release);
    }

    /// Which hold was too old. If none was, the task is woken when one is.
    fn poll(&self, cx: &Context<'_>) -> Option<HeldTooLong> {
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
    fn charged(&self, policy: &Policy) -> Option<Charged> {
        let unset = if self.is_answered.load(Ordering::Acquire) { Charged::Held } else { Charged::AsUnsettled };
        Some(self.bill.upgrade()?.cost_of(policy.name()).map_or(unset, Charged::Units))
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
