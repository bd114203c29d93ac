//! Events of the file system, as hints that a file may have changed.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread::sleep,
    time::Duration,
};

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};

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
