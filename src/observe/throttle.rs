//! What delays a report: throttles, which limit how often a warning is written, and locks, because an observer may
//! check a limit that takes the same lock.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Spaces the warnings of one kind.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    next_us: AtomicU64,
    left_out: AtomicU64,
}

impl Throttle {
    /// Allows one warning every `pause_us`. Returns the number of warnings left out since the last allowed one, or
    /// `None` if this warning is left out too.
    pub(crate) fn claim(&self, now_us: u64, pause_us: u64) -> Option<u64> {
        let next_us = self.next_us.load(Ordering::Relaxed);
        // If the next warning is further away than a pause, the clock was put back.
        let early = now_us < next_us && next_us - now_us <= pause_us;
        let mine = || self.next_us.compare_exchange(next_us, now_us + pause_us, Ordering::Relaxed, Ordering::Relaxed);
        if early || mine().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }

    /// Allows a warning although none is due. Returns the number of warnings left out since the last allowed one.
    #[cfg(feature = "tracing")]
    pub(super) fn insist(&self, now_us: u64, pause_us: u64) -> u64 {
        self.next_us.store(now_us + pause_us, Ordering::Relaxed);
        self.left_out.swap(0, Ordering::Relaxed)
    }

    /// Forgets the warnings that were left out.
    #[cfg(feature = "tracing")]
    pub(super) fn forget(&self) {
        self.left_out.store(0, Ordering::Relaxed);
    }
}

/// Allows a warning once.
#[derive(Debug, Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    /// Returns `true` for the first caller only.
    pub(crate) fn claim(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Relaxed)
    }

    /// Whether nobody has claimed the warning.
    pub(crate) fn is_due(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    /// Allows the warning again.
    pub(crate) fn rearm(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

thread_local! {
    /// How many calls of [`with_reports_after`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static REPORTS: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which takes a lock and frees it, and then makes the reports that were deferred meanwhile.
#[inline]
pub(crate) fn with_reports_after<T>(work: impl FnOnce() -> T) -> T {
    let section = Section::enter();
    let output = work();
    drop(section);
    if DEPTH.get() == 0 && REPORTS.with_borrow(|reports| !reports.is_empty()) {
        REPORTS.take().into_iter().for_each(|report| report());
    }
    output
}

/// Makes a report, after the work of [`with_reports_after`] if this is part of it.
pub(crate) fn report_later(report: impl FnOnce() + 'static) {
    match DEPTH.get() {
        0 => report(),
        _ => REPORTS.with_borrow_mut(|reports| reports.push(Box::new(report))),
    }
}

/// A part of the work, also if it panics.
struct Section;

impl Section {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, panic::catch_unwind, rc::Rc};

    use super::*;

    #[test]
    fn reports_are_made_in_order_after_the_outermost_work() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let see = |what: &'static str| {
            let seen = Rc::clone(&seen);
            move || seen.borrow_mut().push(what)
        };
        report_later(see("at once"));
        with_reports_after(|| {
            with_reports_after(|| report_later(see("first")));
            report_later(see("second"));
            see("work")();
        });
        assert_eq!(*seen.borrow(), ["at once", "work", "first", "second"]);
    }

    #[test]
    fn work_that_panics_defers_nothing_that_comes_after_it() {
        assert!(catch_unwind(|| with_reports_after(|| panic!("the work panics"))).is_err());
        let seen = Rc::new(Cell::new(false));
        let report = Rc::clone(&seen);
        report_later(move || report.set(true));
        assert!(seen.get());
    }
}
