//! Tables of a file while they are read, and single values. An error says what the value is, and what to write instead.

use std::time::Duration;

use super::fields::{Field, Table};
use super::mistake::{Mistakes, Place, advice, quoted};
use super::tree::Tree;
use crate::policy::units;

/// A table with fixed fields. Its unknown and repeated fields are mistakes already.
#[derive(Debug)]
pub(super) struct Section {
    place: Place,
    values: Vec<(&'static str, Tree)>,
}

/// A field that was read.
#[derive(Clone, Debug)]
pub(super) enum Read<T> {
    Absent,
    /// The mistake has been added.
    Wrong,
    Value(T),
}

impl<T> Read<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Wrong => None,
        }
    }

    pub(super) fn as_ref(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Wrong => None,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl Section {
    /// Opens a table. A value of another type is a mistake, and has no fields.
    pub(super) fn open(value: Tree, place: Place, table: &'static Table, mistakes: &mut Mistakes) -> Option<Self> {
        let mut values = Vec::new();
        for (name, value) in entries(value, &place, mistakes)? {
            if let Some(field) = table.fields.iter().find(|field| field.name == name) {
                values.push((field.name, value));
            } else if let Some((_, reason)) = table.refused.iter().find(|(refused, _)| *refused == name) {
                mistakes.add(place.at(&name), *reason);
            } else {
                let known = table.fields.iter().map(|field| field.name).filter(|known| !known.starts_with('$'));
                mistakes.add_with(place.at(&name), || format!("no field has this name; {}", advice(&name, known)));
            }
        }
        Some(Self { place, values })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn place_of(&self, field: &Field) -> Place {
        self.place.at(field.name)
    }

    pub(super) fn has(&self, field: &Field) -> bool {
        self.values.iter().any(|(name, _)| *name == field.name)
    }

    /// Takes the value of a field out of the table.
    pub(super) fn take(&mut self, field: &Field) -> Option<Tree> {
        let index = self.values.iter().position(|(name, _)| *name == field.name)?;
        Some(self.values.swap_remove(index).1)
    }

    /// Takes a field out of the table and reads its value.
    pub(super) fn read<T>(
        &mut self,
        field: &Field,
        mistakes: &mut Mistakes,
        read: impl FnOnce(&Field, Tree) -> Result<T, String>,
    ) -> Read<T> {
        let Some(value) = self.take(field) else { return Read::Absent };
        match read(field, value) {
            Ok(value) => Read::Value(value),
            Err(message) => {
                mistakes.add(self.place_of(field), message);
                Read::Wrong
            }
        }
    }
}

/// The entries of a table. A value of another type is a mistake, and so is a key that is there before.
pub(super) fn entries(value: Tree, place: &Place, mistakes: &mut Mistakes) -> Option<Vec<(String, Tree)>> {
    let Tree::Table(all) = value else {
        mistakes.add(place.clone(), format!("{} is not a table; write one, with its fields", shown(&value)));
        return None;
    };
    let mut entries: Vec<(String, Tree)> = Vec::with_capacity(all.len());
    let mut seen = std::collections::HashSet::with_capacity(all.len());
    for (key, value) in all {
        if seen.insert(key.clone()) {
            entries.push((key, value));
        } else {
            mistakes.add(place.at(&key), "this key is in the table twice; leave one of the two out");
        }
    }
    Some(entries)
}

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

pub(super) fn flag(_: &Field, value: Tree) -> Result<bool, String> {
    match value {
        Tree::Flag(flag) => Ok(flag),
        other => Err(format!("{} is not a boolean; write true or false", shown(&other))),
    }
}

/// Reads a field that is `true` or absent.
pub(super) fn only_true(value: &Tree) -> Result<(), String> {
    match value {
        Tree::Flag(true) => Ok(()),
        other => Err(format!("{} is not true; write true, or leave the field out", shown(other))),
    }
}

pub(super) fn text(_: &Field, value: Tree) -> Result<String, String> {
    match value {
        Tree::Text(text) => Ok(text),
        other => Err(format!("{} is not a string; write it in quotes", shown(&other))),
    }
}

pub(super) fn duration(_: &Field, value: Tree) -> Result<Duration, String> {
    let duration = if let Tree::Text(text) = &value { units::duration(text) } else { None };
    duration.ok_or_else(|| {
        format!("{} is not a duration; write \"500ms\", \"90s\", \"5m\", \"2h\" or \"1d\"", shown(&value))
    })
}

/// Reads a rate: the units, at least 1, and their window.
pub(super) fn rate(_: &Field, value: Tree) -> Result<(u64, Duration), String> {
    let text = if let Tree::Text(text) = &value { text } else { "" };
    units::limit_and_window(text).map_err(|advice| format!("{} {advice}", shown(&value)))
}

/// Reads a share, or `None` from `false`. The setter checks the range.
pub(super) fn share_or_off(_: &Field, value: Tree) -> Result<Option<f64>, String> {
    match value {
        Tree::Flag(false) => Ok(None),
        Tree::Fraction(share) => Ok(Some(share)),
        Tree::Integer(1) => Ok(Some(1.0)),
        other => Err(format!(
            "{} is not a share of the limit; write a number above 0 and at most 1, such as 0.8, or false",
            shown(&other)
        )),
    }
}

/// Reads a whole number in the range of the field.
pub(super) fn whole<N: TryFrom<u64>>(field: &Field, value: Tree) -> Result<N, String> {
    let (least, most) = (field.range.start(), field.range.end());
    match value {
        Tree::Integer(number) => u64::try_from(number)
            .ok()
            .filter(|number| field.range.contains(number))
            .and_then(|number| N::try_from(number).ok())
            .ok_or_else(|| format!("{number} is out of range; write {least} to {most}")),
        other => Err(format!("{} is not a whole number; write {least} to {most}", shown(&other))),
    }
}

/// Reads one of the words of the pairs.
pub(super) fn word<T: Copy>(pairs: &[(&'static str, T)], value: &Tree) -> Result<T, String> {
    let words = || pairs.iter().map(|(word, _)| *word);
    let Tree::Text(text) = value else {
        return Err(format!("{} is not a string; write one of {}", shown(value), quoted(words())));
    };
    let found = pairs.iter().find(|(word, _)| word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<String> = words().map(|word| format!("{word:?}")).collect();
        format!("{} is not known; {}", shown(value), advice(&format!("{text:?}"), words.iter().map(String::as_str)))
    })
}

/// Reads a list of names.
pub(super) fn names(_: &Field, value: Tree) -> Result<Vec<String>, String> {
    let Tree::List(values) = value else {
        return Err(format!("{} is not a list; write the names of policies, such as [\"per-client\"]", shown(&value)));
    };
    let name = |value| match value {
        Tree::Text(name) => Ok(name),
        other => Err(format!("{} is not the name of a policy; write it in quotes", shown(&other))),
    };
    values.into_iter().map(name).collect()
}

/// The value as the file writes it, or what it is. Long strings are cut.
pub(super) fn shown(value: &Tree) -> String {
    match value {
        Tree::Flag(flag) => flag.to_string(),
        Tree::Integer(number) => number.to_string(),
        Tree::Fraction(number) => format!("{number:?}"),
        Tree::Text(text) => match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{:?}...", &text[..end]),
            None => format!("{text:?}"),
        },
        Tree::List(_) | Tree::Table(_) | Tree::Null | Tree::Other(_) => value.kind().to_owned(),
    }
}
