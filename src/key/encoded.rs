//! The bytes of a key, in place if they are few.

use std::hash::{Hash, Hasher};

/// Up to [`INLINE`] bytes without an allocation, copied and compared as a whole.
#[derive(Clone, Eq, PartialEq)]
pub(super) enum Encoded {
    /// What follows the first `length` bytes is 0.
    Inline { length: u8, bytes: [u8; INLINE] },
    /// Always more than [`INLINE`] bytes.
    Heap(Box<[u8]>),
}

/// Most subjects, and all hashes.
const INLINE: usize = 38;

impl Encoded {
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Encoded {
    fn from(slice: &[u8]) -> Self {
        match u8::try_from(slice.len()) {
            Ok(length) if slice.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..slice.len()].copy_from_slice(slice);
                Self::Inline { length, bytes }
            }
            _ => Self::Heap(slice.into()),
        }
    }
}

impl Hash for Encoded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}
