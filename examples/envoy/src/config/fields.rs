//! The fields of a map: each is taken once, and what is left is a mistake.

use std::{rc::Rc, str::FromStr, time::Duration};

use super::mistake::{Mistakes, Place};
use super::yaml::{Node, Value};

pub(super) struct Fields<'a> {
    pub(super) place: Place,
    fields: Vec<(&'a str, Place, &'a Rc<Node>)>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The fields of a map; `None`, and a mistake, if `node` is no map.
    pub(super) fn of(node: &'a Node, what: &str, mistakes: &mut Mistakes) -> Option<Self> {
        let Value::Map(map) = &node.value else {
            mistakes.add(node.place, format!("{what} is {}; write a map", node.kind()));
            return None;
        };
        let mut fields: Vec<(&str, Place, &Rc<Node>)> = Vec::with_capacity(map.len());
        for (key, value) in map {
            match &key.value {
                Value::Scalar { text, .. } if key.kind() == "text" => {
                    if fields.iter().any(|(name, ..)| name == text) {
                        mistakes.add(key.place, format!("{text} is here twice"));
                    } else {
                        fields.push((text, key.place, value));
                    }
                }
                _ => mistakes.add(key.place, format!("a key is {}; write text", key.kind())),
            }
        }
        Some(Self { place: node.place, fields, known: Vec::new() })
    }

    /// Takes a field. One without a value is as if it were not there.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'a Rc<Node>> {
        self.known.push(name);
        let at = self.fields.iter().position(|(field, ..)| *field == name)?;
        let (_, _, node) = self.fields.remove(at);
        (!node.is_null()).then_some(node)
    }

    pub(super) fn text(&mut self, name: &'static str, mistakes: &mut Mistakes) -> Option<(Place, &'a str)> {
        let node = self.take(name)?;
        let text = node.text();
        if text.is_none() {
            mistakes.add(node.place, format!("{name} is {}; write text", node.kind()));
        }
        text.map(|text| (node.place, text))
    }

    pub(super) fn truth(&mut self, name: &'static str, mistakes: &mut Mistakes) -> bool {
        let Some(node) = self.take(name) else { return false };
        let truth = node.truth();
        if truth.is_none() {
            mistakes.add(node.place, format!("{name} is {}; write true or false", node.kind()));
        }
        truth.unwrap_or(false)
    }

    /// A whole number from 0 to `most`.
    pub(super) fn number(&mut self, name: &'static str, most: u64, mistakes: &mut Mistakes) -> Option<u64> {
        let node = self.take(name)?;
        let number = node.number().filter(|number| *number <= most);
        if number.is_none() {
            let found = node.text().unwrap_or(node.kind());
            mistakes.add(node.place, format!("{name} is {found}; write a whole number from 0 to {most}"));
        }
        number
    }

    /// A duration such as `500ms`, `90s`, `5m`, `2h` or `1d`.
    pub(super) fn duration(&mut self, name: &'static str, mistakes: &mut Mistakes) -> Option<Duration> {
        let (place, text) = self.text(name, mistakes)?;
        let duration = duration(text);
        if duration.is_none() {
            mistakes.add(place, format!("{name} is {text:?}; write a duration such as 500ms, 90s, 5m, 2h or 1d"));
        }
        duration
    }

    /// One of the words of a type.
    pub(super) fn word<T: FromStr>(&mut self, name: &'static str, words: &str, mistakes: &mut Mistakes) -> Option<T> {
        let (place, text) = self.text(name, mistakes)?;
        let word = text.parse().ok();
        if word.is_none() {
            mistakes.add(place, format!("{name} is {text:?}; write one of: {words}"));
        }
        word
    }

    /// Reports the fields that nothing has taken.
    pub(super) fn end(self, mistakes: &mut Mistakes) {
        for (name, place, _) in self.fields {
            let known = self.known.join(", ");
            mistakes.add(place, format!("{name} is no field here; the fields are: {known}"));
        }
    }
}

fn duration(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(millis).map(Duration::from_millis)
}
