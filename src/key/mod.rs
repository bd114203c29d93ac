//! Who is charged: the [`Key`], and the extractors that find it in a request.

mod combine;
mod convert;
mod encoded;
mod error;
mod extension;
mod header;
mod ip;
mod missing;
pub(crate) mod path;

use std::fmt;

use http::request::Parts;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use self::encoded::Encoded;
pub use self::{
    combine::IntoExtraction,
    error::KeyError,
    extension::ExtensionKey,
    header::{ApiKey, HeaderKey},
    ip::{ClientIp, IntoPrefixes, PeerIp, PrefixList},
    missing::{MissingKey, OnMissingKey},
    path::{GlobalKey, MatchedPathKey},
};

/// Who is charged: the partition key of a limit.
///
/// Built from text, bytes, addresses, integers or UUIDs (feature `uuid`), injectively: two different inputs never share
/// a key, and no input can choose its place in the store. Integers and UUIDs are their text, whatever their type, so
/// `17_u64`, `17_i32` and `"17"` are one key. Long ones are kept as a SHA-256 hash. `Debug` does not show it, for it
/// identifies somebody; a `RedisStore` gets it as a hash under a secret (`RedisStoreBuilder::key_secret`).
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
    /// The one key of [`GlobalKey`].
    pub(crate) const GLOBAL: &'static [u8] = b"*";
    /// The shared bucket of requests without a key.
    pub(crate) const MISSING: &'static [u8] = b"*missing";
    /// The shared bucket of requests that no route matched.
    pub(crate) const UNMATCHED: &'static [u8] = b"*unmatched";

    /// Creates a key from any bytes.
    pub fn new(subject: impl AsRef<[u8]>) -> Self {
        let subject = subject.as_ref();
        if subject.len() > MAX_PLAIN {
            return Self::hashed(subject);
        }
        // Without a way out in between, so that the bytes need not wait for each other.
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
            // No escape ends after its sign, so this stands for the empty subject alone.
            encoded.push(b'%');
        }
        Self(encoded.as_slice().into())
    }

    /// Creates a key that keeps only a hash of `secret`: 128 bits of SHA-256.
    ///
    /// Within the process that is enough; what leaves it for a `RedisStore` is hashed once more, under a secret.
    pub fn hashed(secret: impl AsRef<[u8]>) -> Self {
        let mut encoded = [b'#'; 33];
        for (hex, byte) in encoded[1..].chunks_exact_mut(2).zip(Sha256::digest(secret)) {
            hex.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        Self(encoded.as_slice().into())
    }

    /// Joins keys to one: equal only if all parts are, in order.
    pub fn join(parts: impl IntoIterator<Item = Key>) -> Self {
        // No other form begins with a parenthesis, and every one that is opened is closed.
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

    /// A key that needs no encoding.
    fn plain(subject: &[u8]) -> Self {
        debug_assert!(!subject.is_empty() && subject.iter().all(|&byte| is_plain(byte)));
        Self(subject.into())
    }

    /// A key that only shows a hash under a secret.
    #[cfg(feature = "redis")]
    pub(crate) fn sealed(hash: &[u8; 16]) -> Self {
        let bits = u128::from_be_bytes(*hash);
        let mut encoded = [b'$'; 23];
        for (sextet, place) in encoded[1..].iter_mut().zip(0_u32..) {
            // The last one has two bits.
            let bits = if place < 21 { bits >> (122 - 6 * place) } else { bits << 4 };
            *sextet = BASE64[(bits & 63) as usize];
        }
        Self(encoded.as_slice().into())
    }

    /// Whether it is, or has in it, the hash of a secret or of something long.
    #[cfg(feature = "redis")]
    pub(crate) fn holds_hash(&self) -> bool {
        // In all that is not hashed the sign is escaped.
        self.encoded().contains(&b'#')
    }

    pub(crate) fn reserved(name: &'static [u8]) -> Self {
        Self(name.into())
    }

    /// The canonical form, for implementations of [`Store`](crate::store::Store): printable ASCII without braces.
    ///
    /// It identifies somebody, so keep it out of logs, and out of stores that others read.
    pub fn encoded(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// Longer subjects are hashed.
const MAX_PLAIN: usize = 64;
const HEX: &[u8; 16] = b"0123456789ABCDEF";
/// The alphabet for URLs and file names (RFC 4648, section 5).
#[cfg(feature = "redis")]
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Everything else is escaped, among it the signs that the forms above are built from: `% # $ * ( | ) { }`.
fn is_plain(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

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

/// Finds the [`Key`] in a request.
///
/// Implemented by the extractors of this crate, by closures, by tuples (one compound key of all parts) and by
/// `Box<dyn KeyExtractor>`.
///
/// Each key is a budget of its own. A key made of something that the client writes as it likes, such as the path, the
/// query or a header that is not checked, gives the client a fresh budget for each spelling. Take the key from what the
/// server knows: the address, an extension that authentication has inserted, the route that was matched
/// ([`MatchedPathKey`]).
///
/// **`None` exempts the request**: nothing that belongs to this key limits it. Return it for requests that are to pass
/// without a limit, never for those whose key you did not find: `parts.headers.get("x-user").map(..)` would let
/// everyone past the limit who leaves the header out. A key that should be there and is not is [`KeyError::missing`].
///
/// # Examples
///
/// ```
/// use http::{Method, request::Parts};
/// use tollgate::{Key, KeyExtractor, key::KeyError};
///
/// /// Inserted by authentication.
/// #[derive(Clone)]
/// struct Account {
///     id: u64,
///     is_staff: bool,
/// }
///
/// fn assert_extractor(_: impl KeyExtractor) {}
///
/// // Always a key: all reads share one budget, all writes another.
/// assert_extractor(|parts: &Parts| Key::from(if parts.method == Method::GET { "reads" } else { "writes" }));
/// // No key is an error, answered as the layer says.
/// assert_extractor(|parts: &Parts| match parts.extensions.get::<Account>() {
///     Some(account) => Ok(Key::from(account.id)),
///     None => Err(KeyError::missing("an account")),
/// });
/// // `None`: the request is exempt. Requests without an account are not.
/// assert_extractor(|parts: &Parts| match parts.extensions.get::<Account>() {
///     Some(account) if account.is_staff => None,
///     Some(account) => Some(Key::from(account.id)),
///     None => Some(Key::from("anonymous")),
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find a key in a request",
    label = "expected `PeerIp::default()` or the like, a tuple of them, or a closure `Fn(&Parts) -> impl IntoExtraction`",
    note = "if this is a `Result`, add `?`: `HeaderKey::new(\"x-tenant\")?`",
    note = "`ExtensionKey<T>` needs `for<'a> &'a T: Into<Key>`: write `impl From<&T> for Key`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Finds the key, or `None` if the request is **exempt**: nothing that belongs to this key limits it.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the request should have a key but has none that can be used.
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError>;

    /// Where keys come from, so that an observer can be [warned](crate::observe::Warning) if they do not tell clients
    /// apart. Asked in the first requests only. Defaults to [`KeyOrigin::Other`], of which nothing is expected.
    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Other
    }

    /// What this request gets, whose key is [missing](KeyError::is_missing). Defaults to `None`, which leaves it to the
    /// layer ([`RateLimitLayer::on_missing_key`](crate::RateLimitLayer::on_missing_key)).
    ///
    /// Asked only after [`extract`](Self::extract) has returned such an error. To set it, wrap the extractor by
    /// [`on_missing_key`](Self::on_missing_key).
    fn missing_key(&self, parts: &Parts) -> Option<MissingKey> {
        let _ = parts;
        None
    }

    /// Refuses a request that nothing limits, because its route or its key is exempt.
    ///
    /// Defaults to letting it pass. [`ClientIp`] refuses the addresses of [`ClientIp::deny`], and, if there are any,
    /// requests whose address it cannot read. A closure has the default, also one that calls a `ClientIp`.
    ///
    /// # Errors
    ///
    /// Any error refuses the request, except one that [says that the key is missing](KeyError::is_missing): requests
    /// that nothing limits, such as health checks, need no key.
    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        let _ = parts;
        Ok(())
    }

    /// Sets what a request without this key gets, in place of the layer's
    /// [own setting](crate::RateLimitLayer::on_missing_key).
    ///
    /// In a tuple, the first part whose key is missing decides for the whole key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HeaderKey, KeyExtractor, MissingKey};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let by_tenant = HeaderKey::new("x-tenant")?.on_missing_key(MissingKey::ShareOneBucket);
    /// # let _ = by_tenant;
    /// # Ok(())
    /// # }
    /// ```
    fn on_missing_key(self, missing: MissingKey) -> OnMissingKey<Self>
    where
        Self: Sized,
    {
        OnMissingKey::new(self, missing)
    }
}

/// Where a [`KeyExtractor`] has its keys from.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum KeyOrigin {
    /// The client's address, as a trusted proxy has passed it on.
    Forwarded,
    /// Anything else: one key for all requests may be right.
    #[default]
    Other,
    /// The address of the connection's other end.
    Peer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_input_reaches_a_reserved_form() {
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
    fn long_keys_are_hashed_and_stay_apart() {
        let (a, b) = ("x".repeat(1 << 20), "x".repeat((1 << 20) + 1));
        assert_ne!(Key::from(&a), Key::from(&b));
        assert_eq!(Key::from(&a).encoded().len(), 33);
        let parts = || vec![Key::from("é".repeat(30)), Key::from("é".repeat(31)), Key::from("c")];
        assert_eq!(Key::join(parts()).encoded().len(), 35);
        // Nor does a long text that looks like a joined key meet one.
        let (a, b) = ("a".repeat(100), "b".repeat(150));
        let joined = Key::join([Key::from(a.as_str()), Key::from(b.as_str())]);
        assert_ne!(joined, Key::new(joined.encoded()));
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
    fn debug_shows_nobody() {
        assert_eq!(format!("{:?}", Key::from("alice")), "Key(..)");
    }
}
