//! Conversions into a [`Key`].

use std::net::IpAddr;

use super::subject::Key;

impl From<&str> for Key {
    fn from(subject: &str) -> Self {
        Self::new(subject)
    }
}

impl From<String> for Key {
    fn from(subject: String) -> Self {
        Self::new(subject)
    }
}

impl From<&String> for Key {
    fn from(subject: &String) -> Self {
        Self::new(subject)
    }
}

impl From<&[u8]> for Key {
    fn from(subject: &[u8]) -> Self {
        Self::new(subject)
    }
}

macro_rules! from_integer {
    ($($integer:ty),+) => {$(
        impl From<$integer> for Key {
            /// Encodes the decimal text: `17_u64`, `17_i32` and `"17"` are one key.
            fn from(subject: $integer) -> Self {
                Self::new(itoa::Buffer::new().format(subject))
            }
        }

        impl From<&$integer> for Key {
            /// Returns the same key as the conversion by value.
            fn from(subject: &$integer) -> Self {
                Self::from(*subject)
            }
        }
    )+};
}

from_integer!(i32, i64, u32, u64, u128, usize);

#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    /// Encodes the text with hyphens and in lower case, as `Uuid`'s `Display` writes it.
    fn from(subject: uuid::Uuid) -> Self {
        Self::new(subject.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()))
    }
}

#[cfg(feature = "uuid")]
impl From<&uuid::Uuid> for Key {
    /// Returns the same key as the conversion by value.
    fn from(subject: &uuid::Uuid) -> Self {
        Self::from(*subject)
    }
}

impl From<IpAddr> for Key {
    /// Encodes the whole address. [`PeerIp`](crate::PeerIp) and [`ClientIp`](crate::ClientIp) group IPv6 addresses by
    /// prefix. To reset or peek at a key of these extractors, use [`PeerIp::key_of`](crate::PeerIp::key_of) or
    /// [`ClientIp::key_of`](crate::ClientIp::key_of).
    fn from(address: IpAddr) -> Self {
        Self::new(address.to_canonical().to_string())
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}
