//! A sorted set, and the ranges of ZRANGE.

use std::collections::BTreeMap;

use super::reply::{Bytes, Reply};

#[derive(Clone, Debug, Default)]
pub(super) struct SortedSet(BTreeMap<Bytes, f64>);

impl SortedSet {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn count(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.0.get(member).copied()
    }

    /// Whether the member is new.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> bool {
        self.0.insert(member.to_vec(), score).is_none()
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        self.0.remove(member).is_some()
    }

    /// Removes the members whose scores are within a range. Returns how many.
    pub(super) fn remove_range(&mut self, least: &[u8], most: &[u8]) -> i64 {
        let (before, least, most) = (self.count(), Bound::read(least), Bound::read(most));
        self.0.retain(|_, score| !(least.is_below(*score) && most.is_above(*score)));
        before - self.count()
    }

    fn in_order(&self) -> Vec<(&Bytes, f64)> {
        let mut all: Vec<_> = self.0.iter().map(|(member, score)| (member, *score)).collect();
        // By score, then by member: the map has the members in order, and the sort is stable.
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        all
    }

    /// ZRANGE with the arguments behind the key.
    pub(super) fn range(&self, arguments: &[Bytes]) -> Reply {
        let options: Vec<String> =
            arguments[2..].iter().map(|option| String::from_utf8_lossy(option).to_ascii_uppercase()).collect();
        let has = |name: &str| options.iter().position(|option| option == name);
        let mut found = self.in_order();
        if has("BYSCORE").is_some() {
            let (least, most) = (Bound::read(&arguments[0]), Bound::read(&arguments[1]));
            found.retain(|(_, score)| least.is_below(*score) && most.is_above(*score));
            if let Some(limit) = has("LIMIT") {
                let (skip, count) = (number(&options[limit + 1]), number(&options[limit + 2]));
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                found = found.into_iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)).take(count).collect();
            }
        } else {
            let length = i64::try_from(found.len()).unwrap_or(i64::MAX);
            let index = |text: &[u8]| {
                let index = number(&String::from_utf8_lossy(text));
                if index < 0 { length + index } else { index }
            };
            let (first, last) = (index(&arguments[0]).max(0), index(&arguments[1]).min(length - 1));
            let count = usize::try_from(last - first + 1).unwrap_or(0);
            found = found.into_iter().skip(usize::try_from(first).unwrap_or(0)).take(count).collect();
        }
        let with_scores = has("WITHSCORES").is_some();
        let reply = |(member, score): (&Bytes, f64)| {
            let score = with_scores.then(|| Reply::Bulk(text_of(score)));
            [Some(Reply::Bulk(member.clone())), score].into_iter().flatten()
        };
        Reply::List(found.into_iter().flat_map(reply).collect())
    }
}

/// An end of a range of scores.
struct Bound {
    score: f64,
    is_open: bool,
}

impl Bound {
    fn read(text: &[u8]) -> Self {
        match text {
            [b'(', rest @ ..] => Self { score: number_of(rest), is_open: true },
            _ => Self { score: number_of(text), is_open: false },
        }
    }

    fn is_below(&self, score: f64) -> bool {
        if self.is_open { self.score < score } else { self.score <= score }
    }

    fn is_above(&self, score: f64) -> bool {
        if self.is_open { self.score > score } else { self.score >= score }
    }
}

fn number(text: &str) -> i64 {
    text.parse().expect("the script sends whole numbers for indices")
}

pub(super) fn number_of(text: &[u8]) -> f64 {
    match text {
        b"-inf" => f64::NEG_INFINITY,
        b"+inf" | b"inf" => f64::INFINITY,
        _ => String::from_utf8_lossy(text).parse().expect("the script sends numbers as scores"),
    }
}

/// A score as Redis writes it.
pub(super) fn text_of(score: f64) -> Bytes {
    match score {
        f64::INFINITY => b"inf".to_vec(),
        f64::NEG_INFINITY => b"-inf".to_vec(),
        _ => format!("{score}").into_bytes(),
    }
}
