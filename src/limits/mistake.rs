//! Mistakes in a file, each with its place, as TOML writes it: `routes."/search".cost`. Texts that quote a file are
//! bounded, because it may have any size.

use std::fmt::{self, Write};

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

/// The place of a value. The file as a whole has an empty place.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Place(String);

impl Place {
    /// The place of the value under `key` in the table at this place.
    pub(super) fn at(&self, key: &str) -> Self {
        let mut place = self.0.clone();
        if !place.is_empty() {
            place.push('.');
        }
        push_key(&mut place, key);
        Self(place)
    }

    /// The place of a route in the table at this place. Routes are always in quotes, because a valid route needs them.
    pub(super) fn at_route(&self, route: &str) -> Self {
        let mut place = self.0.clone();
        place.push('.');
        push_quoted(&mut place, route);
        Self(place)
    }

    fn into_string(self) -> String {
        self.0
    }
}

/// Appends a key: bare where TOML allows it, otherwise as a basic string.
fn push_key(place: &mut String, key: &str) {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !key.is_empty() && key.chars().all(is_bare) {
        place.push_str(key);
    } else {
        push_quoted(place, key);
    }
}

/// Appends a key as a basic string.
fn push_quoted(place: &mut String, key: &str) {
    place.push('"');
    for character in key.chars() {
        match character {
            '"' | '\\' => place.extend(['\\', character]),
            '\n' => place.push_str("\\n"),
            '\t' => place.push_str("\\t"),
            '\r' => place.push_str("\\r"),
            control if control.is_control() => {
                // Writing to a `String` cannot fail.
                let _ = write!(place, "\\u{:04X}", u32::from(control));
            }
            other => place.push(other),
        }
    }
    place.push('"');
}

/// The first `most` characters, and dots if there are more.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_quoted_as_toml_needs_it() {
        let cases = [
            ("search", "search"),
            ("per-client_2", "per-client_2"),
            ("", r#""""#),
            ("/search", r#""/search""#),
            ("a.b", r#""a.b""#),
            ("say \"hi\"\\", r#""say \"hi\"\\""#),
            ("a\nb\u{1}\u{7f}", r#""a\nb\u0001\u007F""#),
            ("café", r#""café""#),
        ];
        for (key, written) in cases {
            let place = Place::default().at("routes").at(key).at("cost").into_string();
            assert_eq!(place, format!("routes.{written}.cost"));
            let value: toml::Table = toml::from_str(&format!("{place} = 1")).unwrap();
            assert_eq!(value["routes"][key]["cost"].as_integer(), Some(1), "TOML reads {place} as the same place");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüx", 3), "äöü...");
    }
}
