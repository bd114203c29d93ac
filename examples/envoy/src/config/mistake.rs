//! What is wrong with a configuration, and where.

use std::{fmt, path::PathBuf};

/// A line and a column, both counted from 1.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// One mistake.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) file: PathBuf,
    /// `None` if the whole file is meant.
    pub(super) place: Option<Place>,
    pub(super) message: String,
}

/// All mistakes of a configuration, each in a line of its own with its place.
#[derive(Debug)]
pub struct ConfigMistakes(pub(super) Vec<Mistake>);

impl ConfigMistakes {
    /// The most that a message has.
    const SHOWN: usize = 32;

    pub(super) fn of_file(file: PathBuf, message: impl Into<String>) -> Self {
        Self(vec![Mistake { file, place: None, message: message.into() }])
    }
}

impl fmt::Display for ConfigMistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Mistake { file, place, message }) in self.0.iter().take(Self::SHOWN).enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", file.display())?;
            if let Some(Place { line, column }) = place {
                write!(f, ":{line}:{column}")?;
            }
            write!(f, ": {message}")?;
        }
        match self.0.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ConfigMistakes {}

/// Collects the mistakes of one file.
#[derive(Debug, Default)]
pub(super) struct Mistakes(pub(super) Vec<(Place, String)>);

impl Mistakes {
    pub(super) fn add(&mut self, place: Place, message: impl Into<String>) {
        self.0.push((place, message.into()));
    }
}
