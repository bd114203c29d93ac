//! Mistakes in a file, each with its place.

use std::{error, fmt};

use super::{cut::cut, place::Place};
use crate::error::OneLine;

/// A mistake in a file of limits.
///
/// # Examples
///
/// ```
/// use tollgate::limits::LimitsFile;
///
/// let file: LimitsFile = toml::from_str("[default]\ncots = 10").unwrap();
/// let error = file.check().unwrap_err();
/// assert_eq!(error.mistakes()[0].place(), "default.cots");
/// assert_eq!(error.mistakes()[0].message(), "no field has this name; did you mean cost?");
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mistake {
    place: String,
    message: String,
}

impl Mistake {
    /// The place of the value, as TOML writes it: `routes."/search".cost`. Empty for the file as a whole.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// What is wrong, with the value, and what to write instead.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.message),
            place => write!(f, "{place}: {}", self.message),
        }
    }
}

/// The mistakes in a file of limits. Displays a line for each: the place, a colon and the message. Of more than 32
/// mistakes, the first 32 are kept, and a last line has the number of the others.
///
/// # Examples
///
/// ```
/// use tollgate::limits::LimitsFile;
///
/// let file = r#"
///     [policies.per-client]
///     rate = "60/min"
///     [default]
///     policies = ["per-client"]
///     [routes."/search"]
///     cost = 100
///     [routes."export"]
///     on-store-failure = "close"
/// "#;
/// let error = toml::from_str::<LimitsFile>(file).unwrap().check().unwrap_err();
/// let lines = [
///     r#"routes."/search".cost: 100 is above the limit 60 of policy "per-client""#,
///     r#"routes."export".on-store-failure: "close" is not known; did you mean "closed"?"#,
///     r#"routes."export": route "export" is not understood: write "/path" or "METHOD /path""#,
/// ];
/// # let mut written: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
/// # written.sort();
/// # assert_eq!(written, lines);
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct LimitsError {
    mistakes: Vec<Mistake>,
    /// The number of mistakes that were not kept.
    further: usize,
}

impl LimitsError {
    /// The mistakes: at least one, and at most the first 32.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mistake) in self.mistakes.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        match self.further {
            0 => Ok(()),
            further => write!(f, "\nand {further} further mistakes, which are shown when these are corrected"),
        }
    }
}

/// The mistakes, a line each: a `main` that returns the error prints its `Debug`.
impl fmt::Debug for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mistakes.len() + self.further {
            1 => write!(f, "{self}"),
            count => write!(f, "the limits have {count} mistakes:\n{self}"),
        }
    }
}

impl error::Error for LimitsError {}

/// The most mistakes that are kept: a file of any size has an error that can be read.
const MOST: usize = 32;
/// The most characters of a place and of a message, which may quote a name of any length.
const PLACE: usize = 160;
const MESSAGE: usize = 420;

/// Collects the mistakes while a file is read.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    kept: Vec<Mistake>,
    further: usize,
}

impl Mistakes {
    pub(super) fn add(&mut self, place: Place, message: impl Into<String>) {
        self.add_with(place, || message.into());
    }

    /// Adds a mistake whose message is made only if it is kept, because it takes long.
    pub(super) fn add_with(&mut self, place: Place, message: impl FnOnce() -> String) {
        if self.kept.len() == MOST {
            self.further += 1;
            return;
        }
        // A name in a message may be any text of the file. A mistake is one line.
        let message = OneLine(cut(&message(), MESSAGE)).to_string();
        self.kept.push(Mistake { place: cut(&place.into_string(), PLACE), message });
    }

    pub(super) fn count(&self) -> usize {
        self.kept.len() + self.further
    }

    /// The value, if there was no mistake.
    pub(super) fn or<T>(self, value: Option<T>) -> Result<T, LimitsError> {
        match value {
            Some(value) if self.kept.is_empty() => Ok(value),
            _ => Err(LimitsError { mistakes: self.kept, further: self.further }),
        }
    }
}
