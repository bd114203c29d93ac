//! Reports that wait until a lock is free: an observer may check a limit, which takes the same lock.

use std::cell::{Cell, RefCell};

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
