//! Why the store gives no verdict: the causes of one outage.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, StoreEvidence};

/// The causes of the present outage, or of the last one. No line is written under the lock, because a log may be slow
/// or call the limiter itself.
#[derive(Debug, Default)]
pub(super) struct Causes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The cause when the store was last asked. An open breaker does not replace this cause, because the store is not
    /// asked then.
    latest: Option<Error>,
    /// The causes that lines about this outage have named.
    reported: Vec<(ErrorKind, String)>,
}

/// The most causes of one outage that are reported at once, so that texts that differ each time do not fill a log.
const MOST: usize = 8;

impl Causes {
    /// Remembers why a check had no verdict. Returns the kind of the latest cause, and `true` for a cause that no line
    /// has named, if lines about this outage have named others. One caller gets `true`.
    pub(super) fn note(&self, error: &Error) -> (ErrorKind, bool) {
        let was_asked = error.evidence() != StoreEvidence::NotSent;
        let same = |known: &Error| known.kind() == error.kind() && known.message() == error.message();
        let mut known = self.known();
        if known.latest.is_none() || was_asked && !known.latest.as_ref().is_some_and(same) {
            known.latest = Some(error.clone());
        }
        // That the store is silent is how most outages begin and end, so it is no news.
        let may_be_news = was_asked && !error.is_late() && !known.reported.is_empty();
        let is_news = may_be_news && known.name(error);
        (known.latest.as_ref().map_or(error.kind(), Error::kind), is_news)
    }

    /// The latest cause, which a line is about to name.
    pub(super) fn report(&self) -> Option<Error> {
        let mut known = self.known();
        let latest = known.latest.clone()?;
        known.name(&latest);
        Some(latest)
    }

    /// Forgets what lines have named, because the outage has ended.
    pub(super) fn end_outage(&self) {
        self.known().reported.clear();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic under the lock leaves valid causes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Notes that a line names a cause. Returns whether none has named it before.
    fn name(&mut self, error: &Error) -> bool {
        let is_named = self.reported.iter().any(|(kind, text)| *kind == error.kind() && text == error.message());
        let is_new = !is_named && self.reported.len() < MOST;
        if is_new {
            self.reported.push((error.kind(), error.message().to_owned()));
        }
        is_new
    }
}
