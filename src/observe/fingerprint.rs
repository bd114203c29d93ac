//! Fingerprints: what logs may contain of a key.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use crate::key::Key;

/// A short hash that distinguishes keys without disclosing them.
///
/// The hash is SipHash under a random secret of this process, so that a fingerprint does not reveal its key to a reader
/// who tries all addresses. The same key has another fingerprint in another process and after a restart.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, observe::Fingerprint};
///
/// let alice = Fingerprint::of(&Key::from("alice"));
/// assert_eq!(alice, Fingerprint::of(&Key::from("alice")));
/// assert_ne!(alice, Fingerprint::of(&Key::from("bob")));
/// assert_eq!(alice.to_string().len(), 16);
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Fingerprint(u64);

/// One secret for the process, so that all observers and the application's own logs use the same fingerprint for a key.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Fingerprint {
    /// The fingerprint of `key`, for the logs of the application.
    pub fn of(key: &Key) -> Self {
        Self(SECRET.hash_one(key))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
