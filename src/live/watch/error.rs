//! Errors of the first read of a watched file.

use std::{error::Error, fmt, io, path::PathBuf};

use super::reason::reason;

/// The error of [`LiveLimits::watch`](crate::LiveLimits::watch): limits cannot be read from the file.
#[non_exhaustive]
pub enum LimitsFileError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        error: io::Error,
    },
    /// The parser refused the content of the file.
    Refused {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        error: Box<dyn Error + Send + Sync>,
    },
    /// The operating system did not start the thread that watches the file.
    Thread {
        /// The error of the operating system.
        error: io::Error,
    },
}

impl fmt::Display for LimitsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, error } => write!(f, "the limits in {} cannot be read: {error}", path.display()),
            Self::Refused { path, error } => {
                write!(f, "the limits in {} are refused: {}", path.display(), reason(&**error))
            }
            Self::Thread { error } => write!(f, "the thread that watches the limits cannot start: {error}"),
        }
    }
}

/// The message: a `main` that returns the error prints its `Debug`.
impl fmt::Debug for LimitsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for LimitsFileError {}
