//! The secret of an HMAC.

use hmac::{Hmac, KeyInit};
use sha2::Sha256;

use crate::error::ConfigError;

/// A secret that is long enough to resist guessing.
pub(crate) struct Secret<'a>(&'a [u8]);

impl<'a> Secret<'a> {
    /// The shortest secret, in bytes. Shorter secrets can be found by trial.
    pub(crate) const MIN_LENGTH: usize = 16;

    /// # Errors
    ///
    /// [`ConfigError::SecretTooShort`] below [`MIN_LENGTH`](Self::MIN_LENGTH).
    pub(crate) fn new(secret: &'a [u8]) -> Result<Self, ConfigError> {
        if secret.len() < Self::MIN_LENGTH {
            return Err(ConfigError::SecretTooShort { length: secret.len(), least: Self::MIN_LENGTH });
        }
        Ok(Self(secret))
    }

    /// A public constant in place of a secret.
    #[cfg(feature = "redis")]
    pub(crate) const fn unchecked(constant: &'static [u8]) -> Self {
        Self(constant)
    }

    /// An HMAC-SHA-256 that has read nothing yet.
    pub(crate) fn into_hmac(self) -> Hmac<Sha256> {
        Hmac::new_from_slice(self.0).expect("HMAC takes secrets of any length")
    }
}
