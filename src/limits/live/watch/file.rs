//! The watched file: its content, and the limits in it.

use std::{
    error::Error,
    io::{self, Read},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use super::regular;
use crate::limits::LimitsConfig;

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
        regular::open(&self.path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
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
