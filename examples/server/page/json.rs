//! JSON objects, written field by field: a tree of values for each event would cost more than its check.

use std::{fmt::Display, io::Write};

/// The fields of an object.
pub(super) struct Fields<'a>(&'a mut Vec<u8>);

impl<'a> Fields<'a> {
    pub(super) fn begin(text: &'a mut Vec<u8>) -> Self {
        text.push(b'{');
        Self(text)
    }

    /// A number or a truth value.
    pub(super) fn value(&mut self, name: &str, value: impl Display) {
        self.name(name);
        // Writing to memory cannot fail.
        let _ = write!(self.0, "{value}");
    }

    pub(super) fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.value(name, value);
        }
    }

    /// A text without characters that JSON escapes.
    pub(super) fn word(&mut self, name: &str, word: impl Display) {
        self.name(name);
        let _ = write!(self.0, "\"{word}\"");
    }

    pub(super) fn text<'t>(&mut self, name: &str, text: impl Into<Option<&'t str>>) {
        if let Some(text) = text.into() {
            self.name(name);
            let _ = serde_json::to_writer(&mut *self.0, text);
        }
    }

    pub(super) fn object(&mut self, name: &str, write: impl FnOnce(&mut Fields<'_>)) {
        self.name(name);
        self.nested(write);
    }

    /// A list of objects, each written by `write`.
    pub(super) fn objects<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Fields<'_>, T),
    ) {
        self.name(name);
        self.0.push(b'[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.0.push(b',');
            }
            self.nested(|fields| write(fields, item));
        }
        self.0.push(b']');
    }

    pub(super) fn end(self) {
        self.0.push(b'}');
    }

    fn nested(&mut self, write: impl FnOnce(&mut Fields<'_>)) {
        let mut fields = Fields::begin(self.0);
        write(&mut fields);
        fields.end();
    }

    fn name(&mut self, name: &str) {
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        let _ = write!(self.0, "\"{name}\":");
    }
}
