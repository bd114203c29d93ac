//! The holds of a request and how they end.

use std::{fmt, sync::Arc};

use http::{Method, StatusCode, response::Parts};

use super::{bill::Bill, settle::Settle};
use crate::{
    decision::Decision,
    limiter::{Charged, RequestHolds},
};

/// Decides how the holds of a request end, by its response.
pub(crate) type Settling = Arc<dyn Fn(&Parts) -> Settle + Send + Sync>;

/// The holds of a request, settled at the latest when this is dropped.
pub struct Tab {
    holds: RequestHolds,
    bill: Bill,
    settling: Option<Settling>,
    method: Verb,
    /// Whether the store has been asked for the holds.
    is_asked: bool,
    /// Whether the service has answered the request.
    is_answered: bool,
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
        Self { holds, bill, settling, method, is_asked: false, is_answered: false }
    }

    /// Notes that the store is asked. If the request goes away without a verdict, the holds that it may have made end
    /// as those of a request that fails.
    pub(crate) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Keeps the holds that the check has made.
    pub(crate) fn keep_made(&mut self, decision: &Decision) {
        self.is_asked = true;
        self.holds.keep_made(decision);
    }

    /// Settles what the response decides. Returns the rest, which ends with the body of the response. `is_end` says
    /// whether the body is at its end.
    pub(crate) fn respond(mut self: Box<Self>, response: &Parts, is_end: bool) -> Option<Box<Self>> {
        let settle = self.settling.as_ref().map_or(Settle::AtEnd, |settling| settling(response));
        self.is_answered = true;
        match settle {
            Settle::AtEnd => {}
            Settle::Charge(units) => self.holds.settle(Charged::Units(units)),
            Settle::Keep => self.holds.settle(Charged::Held),
            Settle::Release => self.holds.settle(Charged::Units(0)),
        }
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
        self.is_asked = false;
    }

    /// Leaves the holds to the last clone of the bill.
    fn leave_to_bill(mut self) {
        self.is_asked = false;
        let bill = self.bill.clone();
        bill.keep(self.holds.take());
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        if self.is_asked {
            let unset = if self.is_answered { Charged::Held } else { Charged::AsUnsettled };
            self.holds.end(self.bill.cost().map_or(unset, Charged::Units));
        }
    }
}

impl fmt::Debug for Tab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tab").field("holds", &self.holds).field("bill", &self.bill).finish_non_exhaustive()
    }
}
