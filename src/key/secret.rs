//! The secret with which keys are hashed.

use std::fmt;

use sha2::{Digest, Sha256};

use super::subject::Key;
use crate::{error::ConfigError, runtime::random};

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
    pub(crate) fn with_prefix(self, prefix: &[u8]) -> Self {
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
    }
}
