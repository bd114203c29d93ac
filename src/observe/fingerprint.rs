//! Fingerprints: what logs may contain of a key.

use std::{fmt, str::FromStr, sync::OnceLock};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::error::ConfigError;
use crate::key::{Key, partition::Secret};

/// A short hash that distinguishes keys without disclosing them: 22 characters of base64.
///
/// The hash is HMAC-SHA-256 under a secret, so that a fingerprint does not reveal its key to a reader who tries all
/// addresses. The secret is random unless the service [sets one](Self::set_secret): the same key then has another
/// fingerprint in another process and after a restart.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, observe::Fingerprint};
///
/// let alice = Fingerprint::of(&Key::from("alice"));
/// assert_eq!(alice, Fingerprint::of(&Key::from("alice")));
/// assert_ne!(alice, Fingerprint::of(&Key::from("bob")));
/// assert_eq!(alice.to_string().len(), 22);
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Fingerprint([u8; 16]);

/// One secret for the process, so that all observers and the application's own logs use the same fingerprint for a key.
static SECRET: OnceLock<Secret> = OnceLock::new();

impl Fingerprint {
    /// The fingerprint of `key`, for the logs of the application.
    pub fn of(key: &Key) -> Self {
        Self::under(SECRET.get_or_init(Secret::random), key)
    }

    /// Sets the secret of all fingerprints of this process. Call it at the start, before the first request.
    ///
    /// With one secret in all instances, a client has the same fingerprint in the logs of all of them. With the secret
    /// that the store hashes keys with (`RedisStoreBuilder::key_secret`), a fingerprint is also the subject of the
    /// client's Redis keys: the log line `key=_YV7qj_yBCJkNRv0uWtufg` is about the counts in
    /// `tollgate:{$_YV7qj_yBCJkNRv0uWtufg}:per-client:l5:1m`. The docs' page on operations shows the way from a log
    /// line to the counts and back.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the secret is shorter than 16 bytes, or if the process has made fingerprints under
    /// another secret. The same secret may be set again.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, observe::Fingerprint};
    /// # #[cfg(feature = "redis")]
    /// use tollgate::RedisStore;
    ///
    /// # fn secret() -> Result<&'static str, tollgate::ConfigError> { Ok("an example of a secret") }
    /// # #[cfg(feature = "redis")]
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # /*
    /// let secret = std::env::var("TOLLGATE_KEY_SECRET")?;
    /// # */ let secret = secret()?;
    /// Fingerprint::set_secret(&secret)?;
    /// let store =
    ///     RedisStore::builder().key_secret(&secret).open("redis://127.0.0.1:6379")?;
    /// let limiter = Limiter::new(store);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "redis"))]
    /// # fn main() {}
    /// ```
    pub fn set_secret(secret: impl AsRef<[u8]>) -> Result<(), ConfigError> {
        let secret = Secret::new(secret.as_ref())?;
        match SECRET.set(secret) {
            Ok(()) => Ok(()),
            Err(secret) if SECRET.get().is_some_and(|known| known.is_equal(&secret)) => Ok(()),
            Err(_) => Err(ConfigError::new(
                "this process has made fingerprints under another secret; call `Fingerprint::set_secret` once, before \
                 the first request",
            )),
        }
    }

    fn under(secret: &Secret, key: &Key) -> Self {
        Self(secret.hash(key))
    }
}

/// The key of an event. `Display` and `Debug` write its [`Fingerprint`], never the key.
///
/// The fingerprint is computed on demand, because most observers do not need it. `Fingerprint::from(key)` keeps it.
///
/// # Examples
///
/// ```
/// use std::{collections::HashSet, sync::Mutex};
/// use tollgate::observe::{Event, Fingerprint, Observer};
///
/// /// The keys that have come near a limit.
/// #[derive(Default)]
/// struct Near(Mutex<HashSet<Fingerprint>>);
///
/// impl Observer for Near {
///     fn on_event(&self, event: &Event<'_>) {
///         if event.name() == "near_limit" {
///             let mut near = self.0.lock().expect("no panic under the lock");
///             near.extend(
///                 event.charges().map(|(key, ..)| Fingerprint::from(key)),
///             );
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct ObservedKey<'a>(pub(crate) &'a Key);

impl From<ObservedKey<'_>> for Fingerprint {
    fn from(key: ObservedKey<'_>) -> Self {
        Self::of(key.0)
    }
}

impl fmt::Display for ObservedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fingerprint::from(*self).fmt(f)
    }
}

impl fmt::Debug for ObservedKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The subject of the Redis keys of a client: for a `RedisStore` with `RedisStoreBuilder::plain_keys`, which finds the
/// counts of a service whose [secret](Fingerprint::set_secret) of fingerprints is the secret of its store. Only
/// policies without shards are found.
#[cfg(feature = "redis")]
impl From<Fingerprint> for Key {
    fn from(fingerprint: Fingerprint) -> Self {
        Self::from_keyed_hash(&fingerprint.0)
    }
}

/// Reads a fingerprint as a log has it.
///
/// # Errors
///
/// [`ConfigError`] if the text is not the 22 characters of a fingerprint.
impl FromStr for Fingerprint {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| {
            ConfigError::new(
                "this is no fingerprint; write the 22 characters of `key` in a log line, or those behind `$` in a \
                 Redis key",
            )
        })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_secret_makes_one_fingerprint_in_every_process_and_another_secret_another_one() {
        let under = |secret: &[u8]| Fingerprint::under(&Secret::new(secret).unwrap(), &Key::from("alice")).to_string();
        assert_eq!(under(b"an example of a secret"), "OYcgTFRMZSMUc535ws0X5w");
        assert_ne!(under(b"an example of a secret"), under(b"another example of one"));
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_written_and_other_texts_are_an_error() {
        let alice = Fingerprint::of(&Key::from("alice"));
        assert_eq!(alice.to_string().parse(), Ok(alice));
        for text in ["", "alice", "0123456789abcdef", "_YV7qj_yBCJkNRv0uWtufg==", "$_YV7qj_yBCJkNRv0uWtuf"] {
            let error = text.parse::<Fingerprint>().unwrap_err().to_string();
            assert!(error.starts_with("this is no fingerprint; write the 22 characters "), "{text}: {error}");
        }
    }

    #[test]
    fn a_secret_after_the_first_fingerprint_is_an_error() {
        let alice = Fingerprint::of(&Key::from("alice"));
        let late = Fingerprint::set_secret("an example of a secret").unwrap_err().to_string();
        assert!(late.starts_with("this process has made fingerprints under another secret; "), "{late}");
        let short = Fingerprint::set_secret("too short").unwrap_err().to_string();
        assert_eq!(short, "a secret of 9 bytes could be guessed; use at least 16");
        assert_eq!(Fingerprint::of(&Key::from("alice")), alice);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn under_the_secret_of_a_store_a_fingerprint_is_the_subject_of_the_redis_key() {
        let (key, policy) = (Key::from("alice"), crate::Policy::per_minute("p", 1).unwrap());
        let secret = "an example of a secret";
        let fingerprint = Fingerprint::under(&Secret::new(secret.as_bytes()).unwrap(), &key);
        let url = "redis://127.0.0.1:1";
        let store = crate::RedisStore::builder().key_secret(secret).open(url).unwrap();
        let redis_key = store.redis_key(&key, &policy);
        assert_eq!(redis_key, format!("tollgate:{{${fingerprint}}}:p:l5:1m"));
        let plain = crate::RedisStore::builder().plain_keys().open(url).unwrap();
        assert_eq!(plain.redis_key(fingerprint, &policy), redis_key);
    }
}
