//! An allowed request: its decision goes to the handler, and to the response if a layer asks for it; its tab has what
//! it asks to hold, and the bill for its handler.

use std::task::Context;

use http::{Extensions, Response, request::Parts};

use super::holding::{Bill, CarryHolds, HeldTooLong, Tab};
use super::{config::Config, rules::Rules};
use crate::observe::{Event, Warning};
use crate::{
    check::Check, decision::Decision, headers::AllowedFields, rejection::insert_if_strictest, verdict::Source,
};

/// What the response to an allowed request gets. Small, because the response future contains it; the decision itself
/// has moved into the request.
pub(crate) struct Admitted {
    fields: AllowedFields,
    /// The decision for the extensions of the response, if a layer asks for it.
    decision: Option<Box<Decision>>,
    /// The holds of the request.
    tab: Option<Box<Tab>>,
}

/// In the extensions of a request: a layer wants the decision in the response. The layers inside read this.
#[derive(Clone, Copy)]
struct WantedInResponse;

impl<K, R> Config<K, R> {
    /// Puts an allowed decision into the extensions of its request, and writes what the response gets.
    #[inline]
    pub(super) fn admit(
        &self,
        rules: &Rules,
        decision: Decision,
        mut tab: Option<Box<Tab>>,
        request: &mut Extensions,
    ) -> Admitted {
        if let Some(tab) = &mut tab {
            if decision.source() == Source::Open {
                self.warn_on_open_slots(rules, tab);
            }
            tab.keep_holds_of(&decision);
        }
        let fields = rules.writer().write_allowed(&decision);
        let nested = insert_if_strictest(decision, request);
        let wanted = self.decision_in_response || nested && request.get::<WantedInResponse>().is_some();
        let decision = if wanted { for_response(request) } else { None };
        Admitted { fields, decision, tab }
    }

    /// Warns once that requests run without their slots: the store gave no verdict, and the layer fails open.
    #[cold]
    fn warn_on_open_slots(&self, rules: &Rules, tab: &Tab) {
        if let (Some(observer), Some(policy)) = (self.limiter.listener(), tab.slot())
            && rules.without_slot.claim()
        {
            observer.on_event(&Event::of_warning(Warning::without_slot(policy.name())));
        }
    }
}

/// The strictest decision on a request so far. From now on, layers inside put their decisions into the response too,
/// so that it gets the strictest decision of all layers, whichever of them asks for it.
#[cold]
fn for_response(request: &mut Extensions) -> Option<Box<Decision>> {
    request.insert(WantedInResponse);
    request.get::<Decision>().cloned().map(Box::new)
}

impl Admitted {
    /// Whether a hold of the request may get too old.
    pub(super) fn can_get_too_old(&self) -> bool {
        self.tab.as_ref().is_some_and(|tab| tab.can_get_too_old())
    }

    /// Which hold of the request was too old. If none was, the task is woken when one is.
    pub(super) fn poll_too_old(&self, cx: &Context<'_>) -> Option<HeldTooLong> {
        self.tab.as_ref()?.poll_too_old(cx)
    }

    /// Adds the fields, and the decision if it is wanted, to the response of the inner service. The holds of the
    /// request end now, or with the body of the response.
    #[inline]
    pub(super) fn complete<C: CarryHolds<B>, B>(mut self, mut response: Response<B>) -> Response<C::Body> {
        if let Some(tab) = self.tab.take() {
            return self.complete_held::<C, B>(tab, response);
        }
        self.add_to(&mut response);
        C::plain(response)
    }

    /// As [`complete`](Self::complete), for a request with holds.
    #[inline(never)]
    fn complete_held<C: CarryHolds<B>, B>(self, tab: Box<Tab>, response: Response<B>) -> Response<C::Body> {
        let (parts, body) = response.into_parts();
        let tab = tab.respond(&parts, C::is_end(&body));
        let mut response = Response::from_parts(parts, body);
        self.add_to(&mut response);
        match tab {
            Some(tab) => C::holding(response, tab),
            None => C::plain(response),
        }
    }

    #[inline]
    fn add_to<B>(self, response: &mut Response<B>) {
        self.fields.apply(response.headers_mut());
        if let Some(decision) = self.decision {
            insert_if_strictest(*decision, response.extensions_mut());
        }
    }
}

impl<K, R> Config<K, R> {
    /// The holds that a check asks for, and the bill for its handler. `None` without holds.
    #[inline]
    pub(super) fn open_tab(&self, parts: &mut Parts, check: &Check) -> Option<Box<Tab>> {
        match self.limiter.holds_of(check) {
            Some(holds) => {
                let bill = bill_of(&mut parts.extensions);
                Some(Box::new(Tab::new(holds, bill, self.settling.clone(), &parts.method)))
            }
            None => {
                self.add_bill(parts);
                None
            }
        }
    }

    /// Gives a request for which nothing is held a bill, if handlers expect one.
    #[inline]
    pub(super) fn add_bill(&self, parts: &mut Parts) {
        if self.settling.is_some() {
            bill_of(&mut parts.extensions);
        }
    }
}

/// Forgets the holds of a check that was not allowed.
#[inline]
pub(super) fn discard(tab: Option<Box<Tab>>) {
    if let Some(tab) = tab {
        tab.discard();
    }
}

/// The bill of a request, which all layers share.
fn bill_of(request: &mut Extensions) -> Bill {
    request.get_or_insert_with(Bill::new).clone()
}
