//! The secret with which keys are hashed.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::subject::Key;
use crate::{error::ConfigError, runtime::random};

/// A secret for HMAC-SHA-256. `Debug` does not show the secret.
#[derive(Clone)]
pub(crate) struct Secret {
    /// The state of the HMAC after the secret. Computing this state once halves the work of each hash.
    mac: Hmac<Sha256>,
}

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
        Self { mac: Hmac::new_from_slice(secret).expect("HMAC takes secrets of any length") }
    }

    /// Hashes `prefix` before each key, so that one secret makes different hashes for different purposes.
    pub(crate) fn with_prefix(self, prefix: &[u8]) -> Self {
        Self { mac: self.mac.chain_update(prefix) }
    }

    /// The first `N` bytes of the HMAC of `key`; `N` is at most 32.
    pub(crate) fn hash<const N: usize>(&self, key: &Key) -> [u8; N] {
        let tag = self.mac.clone().chain_update(key.encoded()).finalize().into_bytes();
        *tag.first_chunk().expect("an HMAC-SHA-256 has 32 bytes")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
