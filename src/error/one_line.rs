//! Text of other programs and of files in messages of one line.

use std::fmt::{self, Write};

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
