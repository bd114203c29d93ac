//! Serialization of Structured Fields (RFC 9651).

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::duration::{number, seconds_up};
use super::fields::HeaderFields;

/// The text of a field under construction.
pub(super) type Text = SmallVec<[u8; 96]>;

/// The largest Integer, which has 15 digits (RFC 9651, section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A List under construction. The members of one policy fit in place; the members of several may need the heap.
#[derive(Default)]
pub(super) struct List(Text);

impl List {
    /// Adds the member that `write` writes.
    pub(super) fn member(&mut self, write: impl FnOnce(&mut Text)) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b", ");
        }
        write(&mut self.0);
    }

    /// Returns the value of the field. `None` for an empty List, which must not be sent, and for text that no field can
    /// contain: a [`QuotaReport`](super::QuotaReport) that is not made from a policy may have a name with a control
    /// character.
    pub(super) fn value(self) -> Option<HeaderValue> {
        (!self.0.is_empty()).then(|| HeaderValue::from_bytes(&self.0).ok())?
    }

    pub(super) fn push_to(self, fields: &mut HeaderFields, name: HeaderName) {
        if let Some(value) = self.value() {
            fields.push(name, value);
        }
    }
}

/// Writes a String, with `"` and `\` escaped.
pub(super) fn string(out: &mut Text, text: &str) {
    out.push(b'"');
    // The name of a policy needs no escape and is copied as a whole.
    if text.bytes().any(|byte| matches!(byte, b'"' | b'\\')) {
        for byte in text.bytes() {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
}

/// Writes `name`, which includes the separators, and an Integer of at most [`MAX_INTEGER`].
pub(super) fn parameter(out: &mut Text, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value.min(MAX_INTEGER)).as_bytes());
}

/// The value of a field that is an Integer of at most [`MAX_INTEGER`].
pub(super) fn integer(value: u64) -> HeaderValue {
    number(value.min(MAX_INTEGER))
}

/// Writes the parameter `w` in whole seconds, at least 1. Writes nothing for a quota without a window.
pub(super) fn window(out: &mut Text, window: Option<Duration>) {
    if let Some(window) = window {
        parameter(out, ";w=", seconds_up(window).max(1));
    }
}

/// Writes a Byte Sequence: base64 with padding, between colons.
pub(super) fn bytes(out: &mut Text, bytes: &[u8]) {
    out.push(b':');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b':');
}
