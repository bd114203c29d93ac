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
            Ok(length @ ..=16) => Self::short(read_short(slice), length),
            Ok(length) if slice.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..slice.len()].copy_from_slice(slice);
                Self::Inline { length, bytes }
            }
            _ => Self::Heap(slice.into()),
        }
    }
}

/// Reads at most 16 bytes into a number, the first byte into the lowest one. With two overlapping reads of a fixed size
/// instead of a copy, because bytes that were just written with other sizes are slow to read.
#[inline]
fn read_short(slice: &[u8]) -> u128 {
    if let (Some(first), Some(last)) = (slice.first_chunk(), slice.last_chunk()) {
        let (first, last) = (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        u128::from(first) | u128::from(last) << (8 * (slice.len() - 8))
    } else if let (Some(first), Some(last)) = (slice.first_chunk(), slice.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        u128::from(first) | u128::from(last) << (8 * (slice.len() - 4))
    } else {
        slice.iter().rev().fold(0, |text, &byte| text << 8 | u128::from(byte))
    }
}

impl Hash for Encoded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_keep_their_bytes() {
        let text = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH";
        for start in 0..3 {
            for length in 0..=text.len() - start {
                let slice = &text[start..][..length];
                let encoded = Encoded::from(slice);
                assert_eq!(encoded.as_slice(), slice);
                assert_eq!(matches!(encoded, Encoded::Inline { .. }), length <= INLINE);
                if let Encoded::Inline { bytes, .. } = encoded {
                    assert!(bytes[length..].iter().all(|&byte| byte == 0), "{length}");
                }
            }
        }
    }
}
