//! Limits that follow a file, and the thread that watches it.

mod file;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::{error::Error, path::PathBuf, thread};

use self::file::{Content, Events, Fault, WatchedFile, reason};
use super::LiveLimits;
use crate::limits::live::{Shared, change};
use crate::{limits::LimitsConfig, observe::LimitsChange};

pub use self::file::LimitsFileError;

impl LiveLimits {
    /// Reads the limits of a file now, and again after each change of the file, with `parse`.
    ///
    /// A change is in force within a second, usually within 100 ms. New content takes effect when two reads, 50 ms
    /// apart, agree, so that a file that is being written is not taken for a complete one. Still, write another file
    /// and rename it, as editors and deployment tools do: a rename never shows half a file. A Kubernetes ConfigMap that
    /// is mounted as a directory works; one that is mounted with `subPath` is never updated by Kubernetes.
    ///
    /// If the new content is refused, or the file is gone, is no regular file or does not stop changing, the old limits
    /// stay in force. The reason is reported once, with the mistakes: to the
    /// observers of the limiter of the last [layer](Self::layer), and as a line of its [own
    /// reports](crate::observe#what-a-limiter-reports-by-itself).
    ///
    /// A thread of its own watches the file. It ends when all clones of the returned value and all layers that follow
    /// it are dropped. It reads the file twice a second as well, because file systems and container runtimes do not
    /// report every change. Files of more than 16 MiB are refused.
    ///
    /// # Errors
    ///
    /// [`LimitsFileError`] if the file cannot be read or `parse` refuses it, or if the thread cannot start.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::{Limiter, LiveLimits, MemoryStore, PeerIp};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let live = LiveLimits::watch("limits.toml", |text| toml::from_str(text))?;
    /// let limit = live.layer(Limiter::new(MemoryStore::new()), PeerIp::new())?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch<F, E>(path: impl Into<PathBuf>, parse: F) -> Result<Self, LimitsFileError>
    where
        F: Fn(&str) -> Result<LimitsConfig, E> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let file = WatchedFile::new(path.into(), move |text| parse(text).map_err(Into::into));
        // Events are collected before the first read, so that no change is lost in between.
        let events = Events::of(file.path());
        let text =
            file.read().map_err(|error| LimitsFileError(Fault::Unreadable { path: file.path().to_owned(), error }))?;
        let refused = |error| LimitsFileError(Fault::Refused { path: file.path().to_owned(), error });
        let live = Self::new(file.parse(&text).map_err(refused)?);
        start(file, Content::Text(text), events, Arc::downgrade(&live.0))?;
        Ok(live)
    }
}

/// Starts the thread. It ends when the limits are dropped.
fn start(file: WatchedFile, known: Content, events: Events, limits: Weak<Shared>) -> Result<(), LimitsFileError> {
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
fn apply(file: &WatchedFile, content: &Content, limits: &Arc<Shared>) -> LimitsChange {
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
