//! Changes of counts by hand: what callers have seen of them.

use std::cell::RefCell;

use tollgate::Error;

use crate::{history::may_last_until, place::Place, plan::mode::Mode, time::now};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// Units are charged, whether they fit or not.
    Record,
    /// Units are given back.
    Credit,
    /// Nothing passes for some milliseconds, which are the units.
    Ban,
    Unban,
    /// All is forgotten.
    Reset,
    /// A service asks not to be called for some milliseconds, which are the units.
    Pause,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// This many units were charged or given back.
    Done(u64),
    Failed {
        what: String,
        may_have_changed: bool,
    },
    /// The caller went away, or its process or runtime ended.
    Gone,
}

/// One change of one count. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) what: What,
    pub(crate) mode: Mode,
    pub(crate) key: u64,
    pub(crate) place: Place,
    pub(crate) units: u64,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Until when it may be made.
    pub(crate) made_by: u64,
    pub(crate) end: End,
}

impl Change {
    /// The most units that it may have charged or given back.
    pub(crate) fn most(&self) -> u64 {
        match self.end {
            End::Done(units) => units,
            End::Failed { may_have_changed: false, .. } => 0,
            End::Failed { .. } | End::Gone => self.units,
        }
    }

    /// The units that it has charged or given back for certain.
    pub(crate) fn certain(&self) -> u64 {
        if let End::Done(units) = self.end { units } else { 0 }
    }
}

thread_local! {
    static CHANGES: RefCell<Vec<Change>> = const { RefCell::new(Vec::new()) };
}

/// Takes all changes that were recorded on this thread.
pub(crate) fn take() -> Vec<Change> {
    CHANGES.take()
}

/// A service asks not to be called.
pub(crate) fn ask_for_a_pause(mode: Mode, key: u64, place: Place, lasts: u64) {
    Changing::start(What::Pause, mode, key, place, lasts).end(End::Done(lasts));
}

/// A change in progress, which is recorded however it ends.
pub(crate) struct Changing(Option<Change>);

impl Changing {
    pub(crate) fn start(what: What, mode: Mode, key: u64, place: Place, units: u64) -> Self {
        let (asked, end) = (now(), End::Gone);
        Self(Some(Change { what, mode, key, place, units, asked, answered: asked, made_by: asked, end }))
    }

    pub(crate) fn answer(mut self, result: Result<u64, &Error>) {
        let end = match result {
            Ok(units) => End::Done(units),
            Err(error) => {
                let (what, may_have_changed) = (format!("{:?}: {error}", error.kind()), error.may_have_charged());
                End::Failed { what, may_have_changed }
            }
        };
        self.end(end);
    }

    fn end(&mut self, end: End) {
        if let Some(change) = self.0.take() {
            let made_by = if let End::Done(_) = end { now() } else { may_last_until(change.mode) };
            CHANGES.with_borrow_mut(|changes| changes.push(Change { end, answered: now(), made_by, ..change }));
        }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.end(End::Gone);
    }
}
