//! What may be said of a key.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use crate::key::Key;

/// A short hash that tells keys apart without naming them.
///
/// Hashed under a random secret of this process (SipHash), so that nobody can try addresses until one fits. It follows
/// that the same key has another fingerprint in another process and after a restart.
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

/// Once a process, so that all observers and the application's own logs speak of the same key alike.
static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Fingerprint {
    /// The fingerprint of `key`, for logs of your own.
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
