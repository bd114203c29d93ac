//! Mistakes in a file, each with its place.

use std::{error, fmt};

use super::place::Place;
use crate::error::OneLine;

/// A mistake in a file of limits.
///
/// # Examples
///
/// ```
/// use tollgate::config::LimitsFile;
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

/// All mistakes in a file of limits. Displays a line for each: the place, a colon and the message.
///
/// # Examples
///
/// ```
/// use tollgate::config::LimitsFile;
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
}

impl LimitsError {
    /// The mistakes; at least one.
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
        Ok(())
    }
}

/// The mistakes, a line each: a `main` that returns the error prints its `Debug`.
impl fmt::Debug for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mistakes.len() {
            1 => write!(f, "{self}"),
            count => write!(f, "the limits have {count} mistakes:\n{self}"),
        }
    }
}

impl error::Error for LimitsError {}

/// Collects the mistakes while a file is read.
#[derive(Debug, Default)]
pub(super) struct Mistakes(Vec<Mistake>);

impl Mistakes {
    pub(super) fn add(&mut self, place: Place, message: impl Into<String>) {
        // A name in a message may be any text of the file. A mistake is one line.
        let message = OneLine(message.into()).to_string();
        self.0.push(Mistake { place: place.into_string(), message });
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The value, if there was no mistake.
    pub(super) fn or<T>(self, value: Option<T>) -> Result<T, LimitsError> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(LimitsError { mistakes: self.0 }),
        }
    }
}
