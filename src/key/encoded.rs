//! The encoded bytes of a key. Short keys need no allocation.

use std::hash::{Hash, Hasher};

/// The encoded bytes of a key. Up to [`INLINE`] bytes are stored in place, and are copied and compared as a whole.
#[derive(Clone, Eq)]
pub(super) enum Encoded {
    /// All bytes after the first `length` are 0.
    Inline { length: u8, bytes: [u8; INLINE] },
    /// Always more than [`INLINE`] bytes.
    Heap(Box<[u8]>),
}

/// The most bytes that are stored in place: enough for most subjects and all hashes.
const INLINE: usize = 38;

impl Encoded {
    /// At most 16 bytes, from the lowest one upwards. All bytes after `length` are 0.
    pub(super) fn short(text: u128, length: u8) -> Self {
        let mut bytes = [0; INLINE];
        bytes[..16].copy_from_slice(&text.to_le_bytes());
        Self::Inline { length, bytes }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }

    /// Compares keys of which at least one is on the heap.
    #[cold]
    fn equals_long(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl PartialEq for Encoded {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline { length: a, bytes: these }, Self::Inline { length: b, bytes: those }) => {
                a == b && are_equal(these, those)
            }
            _ => self.equals_long(other),
        }
    }
}

/// Compares word by word. For the arrays as a whole, the compiler would call a function, and a search for a key would
/// save its registers before each call.
#[inline]
fn are_equal(a: &[u8; INLINE], b: &[u8; INLINE]) -> bool {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.iter().zip(b).all(|(a, b)| a == b) && a_rest == b_rest
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
