//! Advice for a word that is not known: the nearest known word, or all of them.

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
const MOST: usize = 8;

/// The words in quotes, separated by commas. Of many, those that are nearest to what is `written`, and the number of
/// the others.
pub(super) fn nearest<'a>(written: &str, words: impl Iterator<Item = &'a str>) -> String {
    let mut words: Vec<&str> = words.collect();
    if words.len() > MOST {
        words.sort_by_cached_key(|word| distance(written, word));
    }
    let listed = quoted(words.iter().take(MOST).copied());
    match words.len().saturating_sub(MOST) {
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
    fn of_many_words_the_nearest_are_listed() {
        assert_eq!(nearest("c", ["b", "a"].into_iter()), r#""b", "a""#);
        let many: Vec<String> = (0..3_000).map(|number| format!("tenant-{number}")).collect();
        let listed = nearest("tenant-77x", many.iter().map(String::as_str));
        assert!(listed.starts_with(r#""tenant-77", "#) && listed.ends_with(" and 2992 others"), "{listed}");
    }

    #[test]
    fn a_near_word_is_suggested_and_otherwise_all_are_listed() {
        let known = ["cost", "costs", "exempt", "on-store-failure"];
        let cases = [
            ("cots", "did you mean cost?"),
            ("Cost", "did you mean cost?"),
            ("on_store_failure", "did you mean on-store-failure?"),
            ("exmept", "did you mean exempt?"),
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
        assert!(advice(&"x".repeat(100_000), known.into_iter()).starts_with("write one of"));
    }
}
