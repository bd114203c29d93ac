//! Partition keys: the `pk` parameter, which names the partition of a policy that a quota belongs to; and the secret
//! with which keys are hashed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};

use super::subject::Key;
use crate::{error::ConfigError, runtime::random};

/// Computes the `pk` parameter of the RateLimit fields, which distinguishes the partitions of a policy without showing
/// their keys.
///
/// A client that acts for one user has one partition and needs no `pk`. A client that acts for several users, such as a
/// gateway, needs `pk` to see which of its requests share a quota. Only
/// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11) sends the parameter.
///
/// # Examples
///
/// ```
/// use tollgate::{ConfigError, Key, Policy, headers::PartitionKeys};
///
/// # fn main() -> Result<(), ConfigError> {
/// let secret = "at least sixteen bytes, from the environment";
/// let per_user = Policy::per_minute("per-user", 60)?
///     .with_partition_keys(PartitionKeys::hmac(secret)?);
/// // The names of tenants are public here.
/// let label = |tenant: &Key| tenant.encoded().to_vec();
/// let per_tenant = Policy::per_minute("per-tenant", 600)?
///     .with_partition_keys(PartitionKeys::label(label));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PartitionKeys(Arc<Labelling>);

enum Labelling {
    Hmac(Secret),
    Label(Box<Label>),
}

type Label = dyn Fn(&Key) -> Vec<u8> + Send + Sync;

impl PartitionKeys {
    /// Prefix of the hashed text. The prefix keeps `pk` different from the hash of the same key in Redis with the same
    /// secret, because no encoded key contains a 0 byte.
    const DOMAIN: &[u8] = b"pk\0";
    /// Length of a `pk` in bytes. 12 bytes suffice to distinguish partitions, and nothing is authenticated with a `pk`.
    const LENGTH: usize = 12;

    /// Sends the first 12 bytes of an HMAC-SHA-256 with the key `secret`. The hashed text is `pk`, a 0 byte and the
    /// encoded [`Key`].
    ///
    /// A secret is required, because a plain hash of an address or an API key can be inverted by trial. All instances
    /// of a service need the same secret. `Debug` does not show the secret.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `secret` has fewer than 16 bytes: it can be found by trial, and then so can the keys.
    pub fn hmac(secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        let secret = Secret::new(secret.as_ref())?.with_prefix(Self::DOMAIN);
        Ok(Self(Arc::new(Labelling::Hmac(secret))))
    }

    /// Sends the bytes that `label` returns for the key. Any reader of a response can read these bytes.
    ///
    /// Return a few bytes that name a plan, a region or a tenant whose name is public. Never return an address, an API
    /// key, or bytes from which either can be recovered. If `label` panics, `pk` is left out, and the request goes on.
    pub fn label(label: impl Fn(&Key) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Labelling::Label(Box::new(label))))
    }

    /// The partition key of `key`. `None` if the label panics: it is asked for when the store may hold units for the
    /// request, which a panic would leave behind.
    pub(crate) fn of(&self, key: &Key) -> Option<PartitionKey> {
        let bytes = match &*self.0 {
            Labelling::Hmac(secret) => secret.hash::<{ Self::LENGTH }>(key).to_vec(),
            Labelling::Label(label) => catch_unwind(AssertUnwindSafe(|| label(key))).ok()?,
        };
        Some(PartitionKey(Arc::new(bytes)))
    }
}

impl PartialEq for PartitionKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for PartitionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0 {
            Labelling::Hmac(_) => "Hmac(..)",
            Labelling::Label(_) => "Label(..)",
        })
    }
}

/// The value of one `pk`. A single pointer, because every policy in a decision reserves space for this type.
#[derive(Clone, Debug)]
pub(crate) struct PartitionKey(Arc<Vec<u8>>);

impl PartitionKey {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A secret for HMAC-SHA-256 (RFC 2104). `Debug` does not show the secret.
///
/// The HMAC of a text is the hash of the outer block and of the hash of the inner block and the text. Hashing both
/// blocks once halves the work of each HMAC.
#[derive(Clone)]
pub(crate) struct Secret {
    /// The hash after the inner block and the prefix.
    inner: Sha256,
    /// The hash after the outer block.
    outer: Sha256,
}

/// The bytes of a block of SHA-256.
const BLOCK: usize = 64;

impl Secret {
    /// The shortest secret, in bytes. Shorter secrets can be found by trial.
    pub(crate) const SHORTEST: usize = 16;

    /// Creates a secret that the user has chosen.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `secret` is shorter than [`SHORTEST`](Self::SHORTEST).
    pub(crate) fn new(secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < Self::SHORTEST {
            let (length, least) = (secret.len(), Self::SHORTEST);
            return Err(ConfigError::new(format!("a secret of {length} bytes could be guessed; use at least {least}")));
        }
        Ok(Self::unchecked(secret))
    }

    /// Creates a random secret, which no other process has.
    pub(crate) fn random() -> Self {
        let parts: [[u8; 8]; 4] = std::array::from_fn(|_| random::number().to_be_bytes());
        Self::unchecked(parts.as_flattened())
    }

    /// Whether both are the same secret.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        let sample = Key::reserved(Key::GLOBAL);
        self.hash::<32>(&sample) == other.hash::<32>(&sample)
    }

    /// Creates a secret of any length, for a text that is fixed in the code.
    pub(crate) fn unchecked(secret: &[u8]) -> Self {
        let hashed = Sha256::digest(secret);
        let secret = if secret.len() > BLOCK { hashed.as_slice() } else { secret };
        let block = |pad: u8| {
            let mut block = [pad; BLOCK];
            block.iter_mut().zip(secret).for_each(|(byte, secret)| *byte ^= secret);
            Sha256::new_with_prefix(block)
        };
        Self { inner: block(0x36), outer: block(0x5c) }
    }

    /// Hashes `prefix` before each key, so that one secret makes different hashes for different purposes.
    fn with_prefix(self, prefix: &[u8]) -> Self {
        Self { inner: self.inner.chain_update(prefix), ..self }
    }

    /// The first `N` bytes of the HMAC of `key`; `N` is at most 32.
    pub(crate) fn hash<const N: usize>(&self, key: &Key) -> [u8; N] {
        let inner = self.inner.clone().chain_update(key.encoded()).finalize();
        let tag = self.outer.clone().chain_update(inner).finalize();
        *tag.first_chunk().expect("an HMAC-SHA-256 has 32 bytes")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_rfc_4231() {
        let hash = |secret: &[u8], prefix: &str, key: &str| {
            Secret::unchecked(secret).with_prefix(prefix.as_bytes()).hash::<4>(&Key::from(key))
        };
        // Test cases 1 and 6. The secret of the second one is longer than a block.
        assert_eq!(hash(&[0x0b; 20], "Hi ", "There"), [0xb0, 0x34, 0x4c, 0x61]);
        let prefix = "Test Using Larger Than Block-Size Key - Hash Key ";
        assert_eq!(hash(&[0xaa; 131], prefix, "First"), [0x60, 0xe4, 0x31, 0x59]);
        // A secret of one block is not hashed first. Computed with Python's `hmac`.
        assert_eq!(hash(&[0xaa; BLOCK], "Hi ", "There"), [0xeb, 0xef, 0x34, 0xe1]);
    }

    /// A service may set the secret of its fingerprints twice, if it is the same one.
    #[test]
    fn a_secret_is_equal_to_itself_and_to_no_other() {
        let secret = |text: &str| Secret::new(text.as_bytes()).unwrap();
        assert!(secret("0123456789abcdef").is_equal(&secret("0123456789abcdef")));
        assert!(!secret("0123456789abcdef").is_equal(&secret("0123456789abcdeg")));
    }
}
