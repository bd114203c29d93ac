//! The watched file: its content, the limits in it, the errors of the first read, and events of the file system as
//! hints that it may have changed. Only a regular file is opened, without waiting.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::{error::Error, fmt, thread::sleep, time::Duration};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use crate::limits::{LimitsConfig, mistake::cut};

/// A file of limits and its parser.
pub(super) struct WatchedFile {
    path: PathBuf,
    parse: Box<Parse>,
}

type Parse = dyn Fn(&str) -> Result<LimitsConfig, ParseError> + Send;

type ParseError = Box<dyn Error + Send + Sync>;

/// What a read has found.
pub(super) enum Content {
    Text(String),
    Unreadable(io::Error),
}

/// The largest size of a file in bytes. A larger file is a mistake, and would be read twice a second.
const MAX_BYTES: u64 = 16 << 20;
/// The time between two reads of new content that have to agree.
const SETTLE: Duration = Duration::from_millis(50);
/// Number of reads after which content that still changes is refused.
const MAX_READS: u32 = 8;

impl WatchedFile {
    pub(super) fn new(
        path: PathBuf,
        parse: impl Fn(&str) -> Result<LimitsConfig, ParseError> + Send + 'static,
    ) -> Self {
        Self { path, parse: Box::new(parse) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn parse(&self, text: &str) -> Result<LimitsConfig, ParseError> {
        (self.parse)(text)
    }

    pub(super) fn read(&self) -> io::Result<String> {
        let mut text = String::new();
        open(&self.path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(io::Error::other("it is larger than 16 MiB"));
        }
        Ok(text)
    }

    /// The content, if it differs from `known`. Waits until two reads agree, because the file may be half-written, or
    /// between its removal and its replacement.
    pub(super) fn changed_from(&self, known: &Content) -> Option<Content> {
        let mut content = self.content();
        for _ in 0..MAX_READS {
            if content.is_same(known) {
                return None;
            }
            sleep(SETTLE);
            let again = self.content();
            if again.is_same(&content) {
                return Some(again);
            }
            content = again;
        }
        let error = io::Error::new(io::ErrorKind::TimedOut, "its content does not stop changing");
        let content = Content::Unreadable(error);
        (!content.is_same(known)).then_some(content)
    }

    fn content(&self) -> Content {
        self.read().map_or_else(Content::Unreadable, Content::Text)
    }
}

impl Content {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(text), Self::Text(other)) => text == other,
            (Self::Unreadable(error), Self::Unreadable(other)) => {
                error.kind() == other.kind() && error.to_string() == other.to_string()
            }
            (Self::Text(_), Self::Unreadable(_)) | (Self::Unreadable(_), Self::Text(_)) => false,
        }
    }
}

/// Opens a regular file for reading. Anything else under the path is an error, and never a wait.
pub(super) fn open(path: &Path) -> io::Result<File> {
    // To open a device can have an effect, so most of what is no regular file is refused before it is opened.
    require_regular(fs::metadata(path)?.file_type())?;
    open_without_wait(path)
}

/// Opens a regular file, whatever the path has led to before. Another process may have put a pipe or a device in its
/// place meanwhile, and a plain open of a pipe waits for a writer, possibly for ever.
fn open_without_wait(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;

        // Without `O_NOCTTY`, a terminal could become the one that controls the service.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    require_regular(file.metadata()?.file_type())?;
    Ok(file)
}

fn require_regular(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let message =
        format!("it is {} and not a regular file; write the limits to a file, and rename it to this path", name(kind));
    Err(io::Error::other(message))
}

/// What a file is, with an article.
fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        return "a directory";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;

        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    "something else"
}

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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn content_that_does_not_stop_changing_is_refused_once() {
        // Two reads of this file with a pause in between never agree.
        let file = WatchedFile::new("/proc/uptime".into(), |_| unreachable!("not parsed"));
        let Some(refused @ Content::Unreadable(_)) = file.changed_from(&Content::Text(String::new())) else {
            panic!("the content was taken")
        };
        assert!(file.changed_from(&refused).is_none());
    }
}

#[cfg(all(test, unix))]
mod regular_tests {
    use std::process::Command;

    use super::*;

    /// Whether the check before the open has seen a file does not matter.
    #[test]
    fn a_pipe_or_a_device_is_refused_after_it_is_opened_too() {
        let pipe = std::env::temp_dir().join(format!("tollgate-pipe-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = |path: &Path| open_without_wait(path).unwrap_err().to_string();
        assert!(refused(&pipe).starts_with("it is a pipe and not a regular file; write"), "{}", refused(&pipe));
        assert!(refused(Path::new("/dev/null")).starts_with("it is a device"));
        assert!(refused(Path::new("/")).starts_with("it is a directory"));
        fs::remove_file(&pipe).unwrap();
    }
}

#[cfg(test)]
mod events_tests {
    use std::{io, sync::mpsc::TryRecvError};

    use super::*;

    #[test]
    fn a_hint_is_used_once() {
        let (sender, hints) = sync_channel(1);
        let events = Events { hints, _watcher: None };
        sender.send(()).unwrap();
        events.wait();
        assert_eq!(events.hints.try_recv(), Err(TryRecvError::Empty));
    }

    #[test]
    fn an_error_is_reported_again_when_its_kind_or_its_message_is_another_one() {
        let unreadable = |kind, message: &str| Content::Unreadable(io::Error::new(kind, message));
        let [known, same] = [(); 2].map(|()| unreadable(io::ErrorKind::Other, "it is a pipe"));
        let other = unreadable(io::ErrorKind::Other, "it is a device");
        let of_another_kind = unreadable(io::ErrorKind::TimedOut, "it is a pipe");
        assert_eq!([same, other, of_another_kind].map(|content| content.is_same(&known)), [true, false, false]);
    }

    /// The thread would otherwise read the file all the time.
    #[test]
    fn writes_in_the_directory_of_the_file_are_hints_and_reads_are_none() {
        assert!([EventKind::Any, EventKind::Access(AccessKind::Close(AccessMode::Write))].map(is_change) == [true; 2]);
        let reads = [AccessKind::Open(AccessMode::Any), AccessKind::Read, AccessKind::Close(AccessMode::Read)];
        assert!(!reads.into_iter().any(|access| is_change(EventKind::Access(access))));
        let directories = ["limits.toml", "conf/limits.toml"].map(|file| directory_of(Path::new(file)));
        assert_eq!(directories, [PathBuf::from("."), PathBuf::from("conf")]);
    }

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
