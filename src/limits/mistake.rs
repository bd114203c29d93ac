//! Mistakes in a file, each with its place.

use std::fmt;

use super::{cut::cut, place::Place};
use crate::error::OneLine;

/// A mistake in a file of limits, in one line.
#[derive(Debug)]
struct Mistake {
    /// The place of the value, as TOML writes it: `routes."/search".cost`. Empty for the file as a whole.
    place: String,
    /// What is wrong, with the value, and what to write instead.
    message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.message),
            place => write!(f, "{place}: {}", self.message),
        }
    }
}

/// The most mistakes that are kept: a file of any size has an error that can be read.
const MOST: usize = 32;
/// The most characters of a place and of a message, which may quote a name of any length.
const PLACE: usize = 160;
const MESSAGE: usize = 420;

/// Collects the mistakes while a file is read.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    kept: Vec<Mistake>,
    /// The number of mistakes that were not kept.
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
    pub(super) fn or<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.kept.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

/// A line for each mistake: the place, a colon and the message. The number of those that were not kept is a last line.
impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, mistake) in self.kept.iter().enumerate() {
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
