//! The times whose calendar windows a call has. The client computes a window before the call, and the script compares
//! it with the time of the call: a window that does not contain it is stale, and the request is repeated with another
//! one.

use super::outgoing::{Committed, Request, Step};
use super::script::ScriptClock;

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

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use redis::Value;

    use super::*;
    use crate::{
        check::Check,
        policy::{Calendar, Policy},
        store::redis::call::{outgoing::Outgoing, progress::Progress, reply},
    };

    #[test]
    fn a_stale_window_is_that_of_the_charge_whose_count_is_named_and_the_last_one_that_of_other_charges() {
        let daily = Policy::calendar("d", 10, Calendar::daily()).unwrap();
        // Its first charge has two counts: the second one is that of denials.
        let banning = Policy::per_minute("p", 10).unwrap().ban_after(5, Duration::from_secs(60));
        let several = Check::new("a", &banning, 1).and("b", &daily, 1).and("c", &daily, 1);
        let requests = [Check::new("a", &daily, 1), several].map(|check| {
            let keys = check.charges().iter().map(|charge| charge.key.clone()).collect();
            Request::whole(Arc::new(Outgoing::new(check, keys, Progress::new(false), None)))
        });
        // The count and the time of each request.
        let stale_in = |windows: [(f64, f64); 2]| {
            let doubles = [1e15, -1.0, -1.0, 0.0, 0.0, 0.0, 27.0, 27.0, 0.0, 0.0, 0.0];
            let mut packed = doubles.map(f64::to_le_bytes).concat();
            for (number, time_us) in windows {
                packed.extend(b"STALEWINDOW");
                packed.extend([number, time_us].map(f64::to_le_bytes).concat());
            }
            reply::read(&Value::BulkString(packed), requests.iter(), |_| unreachable!()).unwrap().stale
        };
        let found = [stale_in([(1.0, 5.0), (5.0, 7.0)]), stale_in([(1.0, 6.0), (4.0, 8.0)])];
        assert_eq!(found, [[(0, 0, 5), (1, 2, 7)], [(0, 0, 6), (1, 1, 8)]]);

        let window = |at: &(usize, usize, u64)| StaleWindow { request: &requests[at.0], charge: at.1, time_us: at.2 };
        let stale: Vec<_> = found.iter().flatten().map(window).collect();
        let times = CalendarTimes { clock: &ScriptClock::new(None), now_us: Some(1), stale: &stale };
        let of = |index: usize, charge| times.of(&requests[index], charge);
        assert_eq!([of(0, 0), of(1, 0), of(1, 1), of(1, 2)], [6, 8, 8, 7]);
    }
}
