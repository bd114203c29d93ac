//! The times whose calendar windows a call has. The client computes a window before the call, and the script compares
//! it with the time of the call: a window that does not contain it is stale, and the request is repeated with another
//! one.

use super::{
    outgoing::{Committed, Request, Step},
    script::ScriptClock,
};

/// A calendar window that did not contain the time of its charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct StaleWindow<'a> {
    pub(super) request: &'a Request,
    /// The number of the charge in the request.
    pub(super) charge: usize,
    /// The time that the window has to contain.
    pub(super) time_us: u64,
}

/// The times whose calendar windows a call has.
#[derive(Clone, Copy, Debug)]
pub(super) struct CalendarTimes<'a> {
    pub(super) clock: &'a ScriptClock,
    /// The time that the call sends, if it does.
    pub(super) now_us: Option<u64>,
    /// The windows that were stale in earlier calls, the last one last.
    pub(super) stale: &'a [StaleWindow<'a>],
}

impl CalendarTimes<'_> {
    /// The time whose window a charge of a request has. The window of a refund is that of its commit.
    pub(super) fn of(&self, request: &Request, charge: usize) -> u64 {
        if let Step::Refund(Committed::At(time_us)) = request.step {
            return time_us;
        }
        // After a step of the server's clock, the times of two keys may differ.
        let of_request = || self.stale.iter().rev().filter(|stale| std::ptr::eq(stale.request, request));
        let known = of_request().find(|stale| stale.charge == charge).or_else(|| of_request().next());
        let time_us = known.map(|stale| stale.time_us).or(self.now_us);
        time_us.unwrap_or_else(|| self.clock.expected_us())
    }
}
