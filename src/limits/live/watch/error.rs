//! Errors of the first read of a watched file.

use std::{error::Error, fmt, io, path::PathBuf};

use crate::limits::mistake::cut;

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
