//! Values as words, for files, arguments and environment variables; and text of other programs and of files in messages
//! of one line.

use std::fmt::{self, Write};

use crate::error::ConfigError;

/// Returns the value of a word.
pub(crate) fn value_of<T: Copy>(kind: &str, words: &[(&str, T)], text: &str) -> Result<T, ConfigError> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        ConfigError::new(format!("{text:?} is no {kind}; write one of {}", words.join(", ")))
    })
}

/// Returns the word of a value. All values have one.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word)
}

/// Implements `FromStr` and `Display` by the constant `WORDS` of a type.
macro_rules! in_words {
    ($type:ty, $kind:literal) => {
        /// Reads a word. Another text is an error that lists the words.
        impl std::str::FromStr for $type {
            type Err = $crate::error::ConfigError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::error::value_of($kind, &Self::WORDS, text)
            }
        }

        /// Writes the word that [`FromStr`](std::str::FromStr) reads.
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::error::word_of(&Self::WORDS, self))
            }
        }
    };
}

pub(crate) use in_words;

/// Displays a value on one line: characters that a terminal or a log would act on are escaped, as `\n` or `\u{202e}`.
/// So no file and no other program can add a line to a log, hide one or colour it.
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape(f), "{}", self.0)
    }
}

struct Escape<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_escaped) {
            match part.char_indices().next_back().filter(|(_, last)| is_escaped(*last)) {
                Some((start, last)) => write!(self.0, "{}{}", &part[..start], last.escape_debug())?,
                None => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

/// Control characters, separators of lines and paragraphs, and marks that change the direction of text.
fn is_escaped(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_line_and_everything_else_stays_as_it_is() {
        let cases = [
            ("", ""),
            ("plain \"text\" \\ with é and 日本", "plain \"text\" \\ with é and 日本"),
            ("one\ntwo\r\n", "one\\ntwo\\r\\n"),
            ("\u{1b}[2Kred\u{7}", "\\u{1b}[2Kred\\u{7}"),
            ("\u{85}\u{2028}\u{202e}06/nim", "\\u{85}\\u{2028}\\u{202e}06/nim"),
        ];
        for (text, line) in cases {
            assert_eq!(OneLine(text).to_string(), line);
        }
    }
}
