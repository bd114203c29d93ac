//! Why a parser refuses a file: its own words, in a bounded length. A parser quotes a line of the file, which may be of
//! any size.

use std::error::Error;

use crate::config::cut::cut;

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
