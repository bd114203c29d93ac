//! Parts of Structured Fields (RFC 9651).

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::{fields::Fields, seconds::seconds_up};

/// The text of a field.
pub(super) type Text = SmallVec<[u8; 96]>;

/// An Integer has at most 15 digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// A List. The values of one policy fit in place; those of several may need the heap.
#[derive(Default)]
pub(super) struct List(Text);

impl List {
    pub(super) fn member(&mut self, write: impl FnOnce(&mut Text)) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b", ");
        }
        write(&mut self.0);
    }

    /// The field's value; `None` for an empty List, which must not be sent, and for text that no field can contain (a
    /// control character in a name that is not a policy's).
    pub(super) fn value(self) -> Option<HeaderValue> {
        (!self.0.is_empty()).then(|| HeaderValue::from_bytes(&self.0).ok())?
    }

    pub(super) fn push_to(self, fields: &mut Fields, name: HeaderName) {
        if let Some(value) = self.value() {
            fields.push(name, value);
        }
    }
}

/// Writes a String, with `"` and `\` escaped.
pub(super) fn string(out: &mut Text, text: &str) {
    out.push(b'"');
    // The name of a policy needs no escape.
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

/// Writes a parameter with an Integer as its value.
pub(super) fn parameter(out: &mut Text, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value.min(MAX_INTEGER)).as_bytes());
}

/// Writes the parameter `w`, in whole seconds, at least 1; nothing for a quota without a window.
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
