//! The thread that watches a file.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Weak,
    thread,
};

use super::{
    error::{Fault, LimitsFileError, reason},
    events::Events,
    file::{Content, WatchedFile},
};
use crate::{
    limits::live::{limits::Shared, report::change},
    observe::LimitsChange,
};

/// Starts the thread. It ends when the limits are dropped.
pub(super) fn start(
    file: WatchedFile,
    known: Content,
    events: Events,
    limits: Weak<Shared>,
) -> Result<(), LimitsFileError> {
    let run = move || run(&file, known, &events, &limits);
    let started = thread::Builder::new().name("tollgate-limits".to_owned()).spawn(run);
    started.map(drop).map_err(|error| LimitsFileError(Fault::Thread { error }))
}

/// A panic of a parser or an observer must not end the thread, because the limits would silently stop to follow the
/// file.
fn run(file: &WatchedFile, mut known: Content, events: &Events, limits: &Weak<Shared>) {
    while limits.strong_count() > 0 {
        events.wait();
        let Some(content) = file.changed_from(&known) else { continue };
        let Some(limits) = limits.upgrade() else { return };
        let applied = catch_unwind(AssertUnwindSafe(|| apply(file, &content, &limits)));
        let change = applied.unwrap_or_else(|_| refused(file, "the parser of the file panicked".to_owned()));
        // The panic hook has reported the panic of an observer.
        drop(catch_unwind(AssertUnwindSafe(|| limits.report(&change))));
        known = content;
    }
}

/// Puts new content into force, if it can be read and fits.
fn apply(file: &WatchedFile, content: &Content, limits: &Shared) -> LimitsChange {
    match content {
        Content::Unreadable(error) => {
            LimitsChange::Unreadable { file: file.path().to_owned(), reason: error.to_string() }
        }
        Content::Text(text) => match file.parse(text) {
            Ok(parsed) => change(Some(file.path()), &limits.replace(parsed)),
            Err(error) => refused(file, reason(&*error)),
        },
    }
}

fn refused(file: &WatchedFile, reason: String) -> LimitsChange {
    LimitsChange::Refused { file: Some(file.path().to_owned()), reason }
}
