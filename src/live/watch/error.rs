//! Errors of the first read of a watched file.

use std::{error::Error, fmt, io, path::PathBuf};

use crate::config::cut::cut;

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
