//! What Redis gets to see of a subject: a hash under a secret.

use std::{fmt, mem};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{check::Check, error::ConfigError, key::Key};

/// Turns subjects into the form in which they leave the process.
#[derive(Clone)]
pub(super) struct Seal {
    /// Has the secret in it already, which is half of the work.
    mac: Hmac<Sha256>,
    secret: bool,
    plain: bool,
}

/// Without a secret of the user's. Not a random one, for every instance would then have budgets of its own, and new ones
/// after a restart.
const NO_SECRET: &[u8] = b"tollgate";
/// Shorter ones can be found by trial.
const SHORTEST: usize = 16;

impl Seal {
    pub(super) fn with_secret(self, secret: &[u8]) -> Result<Self, ConfigError> {
        if secret.len() < SHORTEST {
            return Err(ConfigError::SecretTooShort { length: secret.len(), least: SHORTEST });
        }
        Ok(Self { mac: mac(secret), secret: true, ..self })
    }

    /// Leaves subjects as they are, except what is or holds a hash: a credential, or something long.
    pub(super) fn plain(self) -> Self {
        Self { plain: true, ..self }
    }

    /// Replaces all subjects of `check`; tells whether one of them was hashed.
    pub(super) fn seal(&self, check: &mut Check) -> bool {
        let mut sealed = false;
        // Several charges are most often the same subject's.
        let mut last: Option<(Key, Key)> = None;
        check.replace_keys(|key| {
            if !self.concerns(key) {
                return;
            }
            sealed = true;
            let hashed = match &last {
                Some((of, hashed)) if of == key => hashed.clone(),
                _ => self.hash(key),
            };
            last = Some((mem::replace(key, hashed.clone()), hashed));
        });
        sealed
    }

    /// The subject as Redis gets to see it.
    pub(super) fn sealed(&self, key: &Key) -> Key {
        if self.concerns(key) { self.hash(key) } else { key.clone() }
    }

    /// Whether a reader of Redis can find out subjects by trial.
    pub(super) fn has_secret(&self) -> bool {
        self.secret
    }

    fn concerns(&self, key: &Key) -> bool {
        !self.plain || key.holds_hash()
    }

    /// 128 bits: two subjects in 2^64 would share them.
    fn hash(&self, key: &Key) -> Key {
        let tag = self.mac.clone().chain_update(key.encoded()).finalize().into_bytes();
        Key::sealed(tag.first_chunk().expect("an HMAC-SHA-256 has 32 bytes"))
    }
}

impl Default for Seal {
    fn default() -> Self {
        Self { mac: mac(NO_SECRET), secret: false, plain: false }
    }
}

fn mac(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes secrets of any length")
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mac: _, secret, plain } = self;
        f.debug_struct("Seal").field("secret", secret).field("plain", plain).finish()
    }
}
