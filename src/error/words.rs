//! Values as words, for files, arguments and environment variables.

use crate::error::config::ConfigError;

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
