//! The shared store: one budget for every instance of a service.

mod ban_settings;
mod builder;
mod call;
mod clear;
mod connect;
mod instances;
mod net;
mod ready;
mod store;

use smallvec::SmallVec;

use crate::check::Check;
use crate::key::{Key, partition::Secret};

pub use self::{ban_settings::OpenHolds, builder::RedisStoreBuilder, store::RedisStore};

/// Hashes keys before they leave the process.
#[derive(Clone, Debug)]
struct KeyHash {
    secret: Secret,
    has_secret: bool,
    is_plain: bool,
}

/// The HMAC key if the user sets no secret. It is not random, because each instance would then have budgets of its own,
/// and new budgets after a restart.
const NO_SECRET: &[u8] = b"tollgate";

impl KeyHash {
    fn with_secret(self, secret: Secret) -> Self {
        Self { secret, has_secret: true, ..self }
    }

    /// Leaves keys readable, except those that are or contain a hash: a credential, or a long key.
    fn plain(self) -> Self {
        Self { is_plain: true, ..self }
    }

    /// The keys of the charges as Redis gets them, in order, and whether one of them was hashed.
    fn keys_of(&self, check: &Check) -> (SmallVec<[Key; 1]>, bool) {
        let mut keys = SmallVec::<[Key; 1]>::new();
        let mut is_hashed = false;
        let mut previous = None;
        for charge in check.charges() {
            // The charges of a check usually have the same key.
            let key = match keys.last() {
                Some(hashed) if previous == Some(&charge.key) => hashed.clone(),
                _ => self.apply(&charge.key),
            };
            is_hashed |= self.hashes(&charge.key);
            previous = Some(&charge.key);
            keys.push(key);
        }
        (keys, is_hashed)
    }

    /// The key as Redis gets it.
    fn apply(&self, key: &Key) -> Key {
        if self.hashes(key) { self.hash(key) } else { key.clone() }
    }

    /// Whether the user has set a secret. Without one, a reader of Redis can find keys by trial.
    fn has_secret(&self) -> bool {
        self.has_secret
    }

    /// Whether `key` is hashed.
    fn hashes(&self, key: &Key) -> bool {
        !self.is_plain || key.holds_hash()
    }

    /// Hashes a key to 128 bits: a collision is expected among 2^64 keys.
    fn hash(&self, key: &Key) -> Key {
        Key::from_keyed_hash(&self.secret.hash(key))
    }
}

impl Default for KeyHash {
    fn default() -> Self {
        Self { secret: Secret::unchecked(NO_SECRET), has_secret: false, is_plain: false }
    }
}
