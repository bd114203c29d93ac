//! Tables of a file while they are read.

use super::{
    fields::{Field, Table},
    mistake::{Mistakes, Place},
    suggest::advice,
    tree::Tree,
    values::shown,
};

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
