//! JSON text.

use std::fmt::{self, Write};

/// A JSON value.
pub(super) enum Json {
    Flag(bool),
    Number(u32),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(String, Json)>),
}

impl Json {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn list(values: impl IntoIterator<Item = Json>) -> Self {
        Self::List(values.into_iter().collect())
    }

    pub(super) fn map(entries: impl IntoIterator<Item = (&'static str, Json)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Writes the value with lists and maps over several lines.
    fn write(&self, f: &mut fmt::Formatter<'_>, level: usize) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write_text(f, text),
            Self::List(values) => write_all(f, ['[', ']'], level, values, |f, value| value.write(f, level + 1)),
            Self::Map(entries) => write_all(f, ['{', '}'], level, entries, |f, (key, value)| {
                write_text(f, key)?;
                f.write_str(": ")?;
                value.write(f, level + 1)
            }),
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

fn write_all<T>(
    f: &mut fmt::Formatter<'_>,
    [open, close]: [char; 2],
    level: usize,
    values: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char(open)?;
    for (number, value) in values.iter().enumerate() {
        f.write_str(if number == 0 { "\n" } else { ",\n" })?;
        write!(f, "{:1$}", "", 2 * (level + 1))?;
        write(f, value)?;
    }
    write!(f, "\n{:1$}{close}", "", 2 * level)
}

/// Writes a string, which has no control characters.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            f.write_char('\\')?;
        }
        f.write_char(character)?;
    }
    f.write_char('"')
}
