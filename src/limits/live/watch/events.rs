//! Events of the file system, as hints that a file may have changed, and errors of the first read.

use std::{
    error::Error,
    fmt, io,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread::sleep,
    time::Duration,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};

use crate::limits::mistake::cut;

/// Hints that a file may have changed. The file is also read at intervals, because not all changes cause events: on
/// network file systems, in the target of a symbolic link, after the directory was replaced, or above the limits of
/// inotify.
pub(super) struct Events {
    hints: Receiver<()>,
    /// Owns the sender of hints; `None` if the system gives no events.
    _watcher: Option<RecommendedWatcher>,
}

/// The longest time between two reads.
const INTERVAL: Duration = Duration::from_millis(500);

/// The shortest time between two reads.
const PAUSE: Duration = Duration::from_millis(50);

impl Events {
    /// Watches the directory of a file, because editors and Kubernetes replace a file instead of writing to it.
    pub(super) fn of(file: &Path) -> Self {
        // One hint is enough: a read after it sees all changes before.
        let (sender, hints) = sync_channel(1);
        Self { hints, _watcher: watch(directory_of(file), sender).ok() }
    }

    /// Waits until the file may have changed.
    pub(super) fn wait(&self) {
        match self.hints.recv_timeout(INTERVAL) {
            // Other files of the directory, such as a log, may change all the time.
            Ok(()) => sleep(PAUSE),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => sleep(INTERVAL),
        }
    }
}

fn watch(directory: PathBuf, hints: SyncSender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
        if event.map_or(true, |event| is_change(event.kind)) {
            // A full channel contains a hint already.
            let _ = hints.try_send(());
        }
    })?;
    watcher.watch(&directory, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Whether an event may be a change. Our own reads cause events of access.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The error of [`LiveLimits::watch`](crate::LiveLimits::watch): the file cannot be read, the parser refuses its
/// content, or the thread that watches it cannot start. The message says which, with the reason.
pub struct LimitsFileError(pub(super) Fault);

/// What has failed.
pub(super) enum Fault {
    Unreadable { path: PathBuf, error: io::Error },
    Refused { path: PathBuf, error: Box<dyn Error + Send + Sync> },
    Thread { error: io::Error },
}

impl fmt::Display for LimitsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Fault::Unreadable { path, error } => write!(f, "the limits in {} cannot be read: {error}", path.display()),
            Fault::Refused { path, error } => {
                write!(f, "the limits in {} are refused: {}", path.display(), reason(&**error))
            }
            Fault::Thread { error } => write!(f, "the thread that watches the limits cannot start: {error}"),
        }
    }
}

/// The message: a `main` that returns the error prints its `Debug`.
impl fmt::Debug for LimitsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The source is the `io::Error` of the file or of the thread, or the error of the parser.
impl Error for LimitsFileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match &self.0 {
            Fault::Unreadable { error, .. } | Fault::Thread { error } => error,
            Fault::Refused { error, .. } => &**error,
        })
    }
}

/// The most characters of a line.
const LINE: usize = 600;
/// The most lines.
const LINES: usize = 60;

/// The message of an error, with a bounded number of lines of a bounded length.
pub(super) fn reason(error: &dyn Error) -> String {
    let text = error.to_string();
    let mut lines: Vec<String> = text.lines().take(LINES).map(|line| cut(line, LINE)).collect();
    let further = text.lines().skip(LINES).count();
    if further > 0 {
        lines.push(format!("and {further} further lines"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn long_lines_and_many_lines_are_cut() {
        let of = |text: String| reason(&io::Error::other(text));
        assert_eq!(of("a\nb".to_owned()), "a\nb");
        let long = of(format!("1 | {}\nreason", "\0".repeat(1_000_000)));
        assert!(long.len() < 700 && long.ends_with("...\nreason"), "{long:?}");
        let many = of("x\n".repeat(100));
        assert!(many.ends_with("x\nand 40 further lines"), "{many:?}");
    }
}
