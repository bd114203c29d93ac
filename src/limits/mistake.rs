//! Mistakes in a file, each with its place, as TOML writes it: `routes."/search".cost`; and the advice for a word that
//! is not known. Texts that quote a file are bounded, because it may have any size.

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

/// Words of other programs and of everyday speech, and the word of a file that means the same.
const SYNONYMS: [(&str, &str); 12] = [
    ("policy", "policies"),
    ("failure", "on-store-failure"),
    ("on-failure", "on-store-failure"),
    ("fail", "on-store-failure"),
    ("route", "routes"),
    ("max-concurrent", "concurrent"),
    ("concurrent-requests", "concurrent"),
    ("concurrency-limit", "concurrent"),
    ("hold", "holds"),
    ("ban", "ban-after"),
    ("weight", "cost"),
    ("period", "window"),
];

/// `did you mean "closed"?` if a known word is near, otherwise a list of all words. The words are written as given.
pub(super) fn advice<'a>(written: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = known.clone().map(|word| (distance(written, word), word)).min_by_key(|(distance, _)| *distance);
    let meant = match near {
        Some((distance, word)) if distance <= 2.min(word.len() / 2) => Some(word),
        _ => synonym(written).filter(|meant| known.clone().any(|word| word == *meant)),
    };
    match (meant, near) {
        (Some(word), _) => format!("did you mean {word}?"),
        (None, Some(_)) => format!("write one of {}", known.collect::<Vec<_>>().join(", ")),
        (None, None) => "leave it out".to_owned(),
    }
}

/// The word of a file that means the same as the word that is written.
fn synonym(written: &str) -> Option<&'static str> {
    SYNONYMS.into_iter().find(|(other, _)| distance(written, other) <= other.len() / 6).map(|(_, word)| word)
}

/// The words in quotes, separated by commas.
pub(super) fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ")
}

/// The most words that are listed.
const MOST_ADVICE: usize = 8;

/// The words in quotes, separated by commas. Of many, those that are nearest to what is `written`, and the number of
/// the others.
pub(super) fn nearest<'a>(written: &str, words: impl Iterator<Item = &'a str>) -> String {
    let mut words: Vec<&str> = words.collect();
    if words.len() > MOST_ADVICE {
        words.sort_by_cached_key(|word| distance(written, word));
    }
    let listed = quoted(words.iter().take(MOST_ADVICE).copied());
    match words.len().saturating_sub(MOST_ADVICE) {
        0 => listed,
        1 => format!("{listed} and 1 other"),
        others => format!("{listed} and {others} others"),
    }
}

/// The most characters of a word that are compared, because the time grows with their square. No word of a file and no
/// name of a policy has more.
const COMPARED: usize = 64;

/// The number of characters to insert, delete, replace or swap with the next that turns one word into the other,
/// without regard to case and with `_` for `-`. Words of very different lengths are as far apart as their lengths.
fn distance(one: &str, other: &str) -> usize {
    let characters = |word: &str| -> Vec<char> {
        word.chars().take(COMPARED).map(|c| if c == '_' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    if one.len().abs_diff(other.len()) > 8 {
        return one.len().abs_diff(other.len());
    }
    let (one, other) = (characters(one), characters(other));
    // Rows of the table of Damerau and Levenshtein: the distance of the first `row` characters of `one` from the first
    // characters of `other`. A swap needs the row before the last.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for row in 1..=one.len() {
        let mut next = vec![row];
        for column in 1..=other.len() {
            let same = one[row - 1] == other[column - 1];
            let mut least = (last[column] + 1).min(next[column - 1] + 1).min(last[column - 1] + usize::from(!same));
            let is_swap =
                row > 1 && column > 1 && one[row - 1] == other[column - 2] && one[row - 2] == other[column - 1];
            if is_swap {
                least = least.min(before[column - 2] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[other.len()]
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

    #[test]
    fn of_many_words_the_nearest_are_listed() {
        assert_eq!(nearest("c", ["b", "a"].into_iter()), r#""b", "a""#);
        let many: Vec<String> = (0..3_000).map(|number| format!("tenant-{number}")).collect();
        let listed = nearest("tenant-77x", many.iter().map(String::as_str));
        assert!(listed.starts_with(r#""tenant-77", "#) && listed.ends_with(" and 2992 others"), "{listed}");
        let eight = ["aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh"];
        assert_eq!(nearest("hh", eight.into_iter()), quoted(eight.into_iter()), "few words stay in their order");
    }

    #[test]
    fn words_are_as_far_apart_as_the_number_of_characters_to_change() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("Rate_Limit", "rate-limit", 0),
            ("rate", "rates", 1),
            ("cots", "cost", 1),
            ("abcd", "badc", 2),
            ("ca", "abc", 3),
            ("kitten", "sitting", 3),
            ("x", "abcdefghi", 9),
            ("x", "abcdefghij", 9),
        ] {
            assert_eq!([distance(one, other), distance(other, one)], [expected; 2], "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_near_word_is_suggested_and_otherwise_all_are_listed() {
        let known = ["cost", "costs", "exempt", "on-store-failure"];
        let cases = [
            ("cots", "did you mean cost?"),
            ("Cost", "did you mean cost?"),
            ("on_store_failure", "did you mean on-store-failure?"),
            ("exmept", "did you mean exempt?"),
            ("no-store-failrue", "did you mean on-store-failure?"),
            ("no-stoer-failrue", "write one of cost, costs, exempt, on-store-failure"),
            ("failure", "did you mean on-store-failure?"),
            ("On_Failure", "did you mean on-store-failure?"),
            ("policy", "write one of cost, costs, exempt, on-store-failure"),
            ("rate", "write one of cost, costs, exempt, on-store-failure"),
            ("", "write one of cost, costs, exempt, on-store-failure"),
        ];
        for (written, expected) in cases {
            assert_eq!(advice(written, known.into_iter()), expected, "{written}");
        }
        assert_eq!(advice("any", std::iter::empty()), "leave it out");
        assert_eq!(advice("txx", ["ttl"].into_iter()), "write one of ttl", "most of a short word is wrong");
        assert!(advice(&"x".repeat(100_000), known.into_iter()).starts_with("write one of"));
    }
}
