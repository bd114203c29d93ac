//! A secret under which keys are hashed.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::subject::Key;
use crate::error::ConfigError;

/// HMAC-SHA-256 with its secret set. `Debug` does not show the secret.
#[derive(Clone)]
pub(crate) struct Secret {
    /// Half of the work of a hash is done when the secret is set.
    mac: Hmac<Sha256>,
}

impl Secret {
    /// The shortest secret, in bytes: shorter ones can be found by trial.
    pub(crate) const SHORTEST: usize = 16;

    /// # Errors
    ///
    /// [`ConfigError::SecretTooShort`] below [`SHORTEST`](Self::SHORTEST).
    pub(crate) fn new(secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < Self::SHORTEST {
            return Err(ConfigError::SecretTooShort { length: secret.len(), least: Self::SHORTEST });
        }
        Ok(Self::unchecked(secret))
    }

    /// A secret of any length, for text that the code fixes.
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
