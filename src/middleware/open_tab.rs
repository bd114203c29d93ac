//! The tab of a request: what it asks to hold, and the bill for its handler.

use http::{Extensions, request::Parts};

use super::{
    config::Config,
    holding::{Bill, Tab},
};
use crate::check::Check;

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
