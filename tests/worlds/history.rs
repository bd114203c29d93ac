//! What callers have seen: the only thing that laws judge.

use std::cell::{Cell, RefCell};

use crate::plan::mode::{Mode, TTL};
use crate::plan::{Plan, swarm::LONGEST_FAULT};
use crate::{place::Place, service::seen::Seen, time::now};

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// `charged` units are charged for certain, between the request and the answer.
    Admitted { charged: u64 },
    /// `retry_after` in milliseconds.
    Denied { retry_after: Option<u64> },
    /// `kind` and text of the error.
    Failed { what: String, may_have_charged: bool },
    /// The caller went away, or its process or runtime ended.
    Gone,
}

/// One call. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) mode: Mode,
    pub(crate) key: u64,
    pub(crate) place: Place,
    pub(crate) cost: u64,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Until when its units may be held or be charged: then they count for a window at most.
    pub(crate) charged_by: u64,
    /// The most units that are charged in the end, if any are.
    pub(crate) most: u64,
    /// Whether the share of its instance has admitted it, and not the store.
    pub(crate) by_share: bool,
    /// When the work under a slot began and ended.
    pub(crate) worked: Option<(u64, u64)>,
    pub(crate) outcome: Outcome,
    /// Of a request to a service.
    pub(crate) web: Option<Web>,
}

/// What the client, the handler and the work of a request know.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Web {
    pub(crate) is_exempt: bool,
    /// The limit that was in force when the request was sent, if that is certain.
    pub(crate) limit: Option<u64>,
    /// What the client has seen.
    pub(crate) seen: Option<Seen>,
    /// When the handler was called.
    pub(crate) reached: Option<u64>,
    /// Whether the handler was told that a store or a share has judged, and which.
    pub(crate) is_judged: bool,
    pub(crate) is_local: bool,
    pub(crate) is_allowed: bool,
    /// What the handler and its body have put on the bill.
    pub(crate) bill: Option<u64>,
    /// The units that have to be charged in the end, if it was held.
    pub(crate) settled: Option<u64>,
    /// When all had ended, and whether it was because the process was killed.
    pub(crate) ended: u64,
    pub(crate) is_killed: bool,
}

impl Call {
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.outcome, Outcome::Denied { .. })
    }

    /// The units that are charged for certain.
    pub(crate) fn charged(&self) -> u64 {
        match self.outcome {
            Outcome::Admitted { charged } => charged,
            _ => 0,
        }
    }

    /// The most units that are charged in the end.
    pub(crate) fn may_charge(&self) -> u64 {
        match self.outcome {
            Outcome::Admitted { .. } | Outcome::Gone | Outcome::Failed { may_have_charged: true, .. } => self.most,
            Outcome::Denied { .. } | Outcome::Failed { .. } => 0,
        }
    }

    /// The most units that stand in the way of others while the call lasts, and for a window after.
    pub(crate) fn in_the_way(&self) -> u64 {
        match self.outcome {
            // As much as has fitted.
            Outcome::Admitted { charged } if self.mode.is_parts() => charged,
            Outcome::Admitted { .. } => self.cost.max(self.most),
            _ if self.may_charge() == 0 => 0,
            _ => self.cost.max(self.most),
        }
    }
}

/// How long a call is on its way, beside the faults that keep it, in milliseconds.
const ON_ITS_WAY: u64 = 300;

/// Until when the units of a call with an unknown fate may be held or charged.
pub(crate) fn may_last_until(mode: Mode) -> u64 {
    now() + LONGEST_OUTAGE.get() + ON_ITS_WAY + if mode.is_holds() { TTL } else { 0 }
}

/// Begins the history of a world.
pub(crate) fn begin(plan: &Plan) {
    take();
    LONGEST_OUTAGE.set(plan.longest_outage().max(LONGEST_FAULT));
}

thread_local! {
    /// How long faults may keep a call, one after the other.
    static LONGEST_OUTAGE: Cell<u64> = const { Cell::new(LONGEST_FAULT) };
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn record(call: Call) {
    CALLS.with_borrow_mut(|calls| calls.push(call));
}

/// Takes all calls that were recorded on this thread.
pub(crate) fn take() -> Vec<Call> {
    CALLS.take()
}
