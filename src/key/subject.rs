//! The key, and the encoding of its subject. Short keys need no allocation.

use std::fmt;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use smallvec::SmallVec;

#[cfg(feature = "redis")]
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// Who is charged: the partition key of a limit.
///
/// Built from a subject: text, bytes, an address, an integer or a UUID (feature `uuid`). The encoding is injective: two
/// different subjects never share a key, and no subject can forge a compound or reserved key, or a Redis hash tag.
/// Integers and UUIDs are encoded as their text, whatever their type, so `17_u64`, `17_i32` and `"17"` are one key. Of
/// subjects of more than 64 bytes, only a hash is kept: 128 bits of SHA-256.
///
/// `Debug` does not show the key, because it identifies a client. A `RedisStore` receives a hash of the key under a
/// secret (`RedisStoreBuilder::key_secret`).
///
/// # Examples
///
/// ```
/// use tollgate::Key;
///
/// assert_eq!(Key::from("user:17"), Key::from(String::from("user:17")));
/// assert_ne!(Key::from("{a}"), Key::from("a"));
/// ```
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Key(Encoded);

impl Key {
    /// The key of all requests, under [`GlobalKey`](crate::GlobalKey).
    pub(crate) const GLOBAL: &'static [u8] = b"*";
    /// The key of all requests without a key, under [`MissingKey::ShareOneKey`](crate::MissingKey::ShareOneKey).
    pub(crate) const MISSING: &'static [u8] = b"*missing";
    /// The key of all requests that no route matched, under [`MatchedPathKey`](crate::MatchedPathKey).
    pub(crate) const UNMATCHED: &'static [u8] = b"*unmatched";

    /// Creates a key from a subject: text or any bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// assert_eq!(Key::new(b"user:17"), Key::from("user:17"));
    /// ```
    pub fn new(subject: impl AsRef<[u8]>) -> Self {
        let subject = subject.as_ref();
        if subject.len() > MAX_PLAIN {
            return Self::hashed(subject);
        }
        // Branch-free, so the loop vectorises.
        if !subject.is_empty() && subject.iter().fold(true, |plain, &byte| plain & is_plain(byte)) {
            return Self(subject.into());
        }
        let mut encoded = SmallVec::<[u8; 3 * MAX_PLAIN]>::new();
        for &byte in subject {
            if is_plain(byte) {
                encoded.push(byte);
            } else {
                encoded.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        if encoded.is_empty() {
            // Every escape has two digits after `%`, so `%` alone can stand for the empty subject.
            encoded.push(b'%');
        }
        Self(encoded.as_slice().into())
    }

    /// Creates a key that keeps only a hash of `secret`: 128 bits of SHA-256.
    ///
    /// Use this constructor for credentials. A `RedisStore` hashes the result again, with a secret, because a plain
    /// hash of a guessable text can be inverted by trial.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{Key, key::KeyError};
    ///
    /// /// One budget per session cookie.
    /// fn session(parts: &Parts) -> Result<Key, KeyError> {
    ///     let cookie = parts
    ///         .headers
    ///         .get("cookie")
    ///         .ok_or_else(|| KeyError::missing("a session cookie"))?;
    ///     Ok(Key::hashed(cookie))
    /// }
    /// ```
    pub fn hashed(secret: impl AsRef<[u8]>) -> Self {
        let mut encoded = [b'#'; 33];
        for (hex, byte) in encoded[1..].chunks_exact_mut(2).zip(Sha256::digest(secret)) {
            hex.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        Self(encoded.as_slice().into())
    }

    /// Joins keys into one compound key. Two compound keys are equal only if they join equal keys in the same order.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// let key = Key::join([Key::from("tenant-a"), Key::from(17)]);
    /// assert_ne!(key, Key::join([Key::from("tenant-a17")]));
    /// ```
    pub fn join(parts: impl IntoIterator<Item = Key>) -> Self {
        // No other form begins with `(`, and each `(` is closed, so a nested compound key is unambiguous.
        let mut joined = SmallVec::<[u8; 3 * MAX_PLAIN]>::from_slice(b"(");
        for part in parts {
            joined.extend_from_slice(part.encoded());
            joined.push(b'|');
        }
        joined.push(b')');
        if joined.len() > 3 * MAX_PLAIN {
            let mut hashed = SmallVec::<[u8; 35]>::from_slice(b"()");
            hashed.extend_from_slice(Self::hashed(joined).encoded());
            return Self(hashed.as_slice().into());
        }
        Self(joined.as_slice().into())
    }

    /// Creates a key from at most 16 bytes that need no escape. The first byte is the lowest of `subject`, and all
    /// bytes after `length` are 0.
    pub(super) fn short(subject: u128, length: u8) -> Self {
        let key = Self(Encoded::short(subject, length));
        debug_assert!(!key.encoded().is_empty() && key.encoded().iter().all(|&byte| is_plain(byte)));
        key
    }

    /// Creates a key from a hash that was made with a secret.
    #[cfg(feature = "redis")]
    pub(crate) fn from_keyed_hash(hash: &[u8; 16]) -> Self {
        let mut encoded = [b'$'; 23];
        URL_SAFE_NO_PAD.encode_slice(hash, &mut encoded[1..]).expect("16 bytes are 22 characters of base64");
        Self(encoded.as_slice().into())
    }

    /// Whether the key is or contains a hash made by [`hashed`](Self::hashed), of a credential or a long subject.
    #[cfg(feature = "redis")]
    pub(crate) fn holds_hash(&self) -> bool {
        // Only such a hash contains `#`, which is escaped in subjects.
        self.encoded().contains(&b'#')
    }

    pub(crate) fn reserved(name: &'static [u8]) -> Self {
        Self(name.into())
    }

    /// Returns the encoded key, for implementations of [`Store`](crate::store::Store): printable ASCII without braces.
    ///
    /// The encoded key identifies a client: keep it out of logs and out of stores that others can read.
    pub fn encoded(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// Longest subject, in bytes, that is kept as text.
const MAX_PLAIN: usize = 64;
const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Whether a byte of a subject needs no escape. Braces and the marks of all encoded forms, `% # $ * ( | )`, need one.
fn is_plain(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

/// For each byte, whether it needs no escape.
static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        plain[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'.' | b':' | b'_' | b'-' | b'/' | b'@' | b'+' | b'=' | b',' | b'~');
        byte += 1;
    }
    plain
};

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The encoded bytes of a key. Up to [`INLINE`] bytes are stored in place, and are copied and compared as a whole.
#[derive(Clone, Eq)]
enum Encoded {
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
    fn no_subject_encodes_to_a_reserved_form() {
        for (input, encoded) in [
            ("user:17", "user:17"),
            ("", "%"),
            ("%", "%25"),
            ("*", "%2A"),
            ("#00", "%2300"),
            ("a|b", "a%7Cb"),
            ("{tag}", "%7Btag%7D"),
            ("\r\n\0", "%0D%0A%00"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(Key::from(input).encoded(), encoded.as_bytes());
        }
    }

    #[test]
    fn long_keys_are_hashed_and_stay_different() {
        let (a, b) = ("x".repeat(1 << 20), "x".repeat((1 << 20) + 1));
        assert_ne!(Key::from(&a), Key::from(&b));
        assert_eq!(Key::from(&a).encoded().len(), 33);
        let parts = || vec![Key::from("é".repeat(30)), Key::from("é".repeat(31)), Key::from("c")];
        assert_eq!(Key::join(parts()).encoded().len(), 35);
        // A long subject that looks like a compound key does not equal that compound key.
        let (a, b) = ("a".repeat(100), "b".repeat(150));
        let joined = Key::join([Key::from(a.as_str()), Key::from(b.as_str())]);
        assert_ne!(joined, Key::new(joined.encoded()));
        assert_eq!(joined, Key::join([Key::from(a), Key::from(b)]), "a key that is too long to be stored in place");
    }

    #[test]
    fn joined_keys_keep_their_boundaries() {
        let join = |parts: &[&str]| Key::join(parts.iter().map(|&part| Key::from(part)));
        assert_ne!(join(&["a", "b"]), join(&["a|b"]));
        assert_ne!(join(&["ab", "c"]), join(&["a", "bc"]));
        assert_ne!(join(&["a", ""]), join(&["", "a"]));
        assert_ne!(join(&["a"]), Key::from("a"));
        assert_ne!(join(&[]), Key::from(""));
        let nested = Key::join([Key::from("a"), join(&["b"])]);
        assert_ne!(nested, Key::join([join(&["a", "b"])]));
        assert_ne!(nested, join(&["a", "b"]));
    }

    #[test]
    fn integers_of_every_type_are_their_decimal_text() {
        let seventeen = Key::from("17");
        let keys = [17_i32.into(), 17_i64.into(), 17_u32.into(), 17_u64.into(), 17_u128.into(), Key::from(17_usize)];
        assert!(keys.iter().all(|key| *key == seventeen));
        assert_eq!(Key::from(&17_i64), seventeen);
        assert_eq!(Key::from(i64::MIN), Key::from("-9223372036854775808"));
        assert_eq!(Key::from(u128::MAX), Key::from("340282366920938463463374607431768211455"));
        assert_ne!(Key::from(-17), seventeen);
    }

    #[cfg(feature = "uuid")]
    #[test]
    fn a_uuid_is_its_text() {
        let uuid = uuid::Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8);
        assert_eq!(Key::from(uuid), Key::from("67e55044-10b1-426f-9247-bb680e5fe0c8"));
        assert_eq!(Key::from(&uuid), Key::from(uuid.to_string()));
    }

    #[test]
    fn debug_does_not_show_the_key() {
        assert_eq!(format!("{:?}", Key::from("alice")), "Key(..)");
    }

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
