//! A text of bounded length, built without an allocation.

/// Bytes of a text: a policy's name of up to 64 characters, two numbers and the syntax around them.
const CAPACITY: usize = 128;

/// A text of at most [`CAPACITY`] bytes.
pub(super) struct BoundedText {
    text: [u8; CAPACITY],
    length: usize,
}

impl Default for BoundedText {
    fn default() -> Self {
        Self { text: [0; CAPACITY], length: 0 }
    }
}

impl BoundedText {
    #[inline]
    pub(super) fn push(&mut self, text: &[u8]) {
        self.text[self.length..][..text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    pub(super) fn push_number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.text[..self.length]
    }
}
