//! Logins and certificates that may change while the process runs: their source is asked at each dial.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::VecDeque, fmt, io};

use redis::ConnectionInfo;

/// A user, or none if its name is empty, and a password.
type Login = (String, String);

/// Logins that the caller replaces while the process runs. Clones share the passwords that are known.
#[derive(Clone)]
pub(crate) struct Logins {
    source: Source<Login>,
    /// The latest passwords. No error may show them.
    known: Arc<Mutex<VecDeque<String>>>,
}

/// The number of passwords that are kept from errors. An error is about a dial or a call of the last seconds.
const KNOWN: usize = 8;

impl Logins {
    pub(crate) fn from<U, P>(source: impl Fn() -> io::Result<(U, P)> + Send + Sync + 'static) -> Self
    where
        U: Into<String>,
        P: Into<String>,
    {
        let source = move || source().map(|(user, password)| (user.into(), password.into()));
        Self { source: Source::asked(source), known: Arc::default() }
    }

    /// The address with the present login.
    pub(crate) fn apply(&self, info: ConnectionInfo) -> io::Result<ConnectionInfo> {
        let failed = |error| io::Error::new(io::ErrorKind::InvalidData, format!("login_from has failed: {error}"));
        let (user, password) = &*self.source.get().map_err(failed)?;
        let mut known = self.known();
        if known.back() != Some(password) {
            known.push_back(password.clone());
        }
        while known.len() > KNOWN {
            known.pop_front();
        }
        let settings = info.redis_settings().clone().set_password(password);
        Ok(info.set_redis_settings(if user.is_empty() { settings } else { settings.set_username(user) }))
    }

    pub(crate) fn passwords(&self) -> Vec<String> {
        self.known().iter().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<String>> {
        // A panic under the lock leaves valid passwords.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fixed value, or a closure of the caller that returns the present one. Not exported.
#[cfg_attr(not(feature = "tls"), expect(unreachable_pub, reason = "a public trait of the feature `tls` names it"))]
pub enum Source<T> {
    #[cfg(feature = "tls")]
    Fixed(Arc<T>),
    Asked(Arc<dyn Fn() -> io::Result<T> + Send + Sync>),
}

impl<T> Source<T> {
    #[cfg(feature = "tls")]
    pub(crate) fn fixed(value: T) -> Self {
        Self::Fixed(Arc::new(value))
    }

    pub(crate) fn asked(source: impl Fn() -> io::Result<T> + Send + Sync + 'static) -> Self {
        Self::Asked(Arc::new(source))
    }

    /// The present value.
    pub(crate) fn get(&self) -> io::Result<Arc<T>> {
        match self {
            #[cfg(feature = "tls")]
            Self::Fixed(value) => Ok(Arc::clone(value)),
            // The error of the dial names the source that has panicked.
            Self::Asked(source) => catch_unwind(AssertUnwindSafe(|| source()))
                .unwrap_or_else(|_| Err(io::Error::other("it has panicked")))
                .map(Arc::new),
        }
    }
}

/// Without the secret.
impl<T> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl<T> Clone for Source<T> {
    fn clone(&self) -> Self {
        match self {
            #[cfg(feature = "tls")]
            Self::Fixed(value) => Self::Fixed(Arc::clone(value)),
            Self::Asked(source) => Self::Asked(Arc::clone(source)),
        }
    }
}

/// Certificates as PEM, or a closure that returns the present ones at each dial. Not exported, because only this crate
/// implements it.
#[cfg(feature = "tls")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither PEM nor a source of PEM",
    label = "expected bytes, text or a closure `|| std::fs::read(path)`; a client certificate has two: `(chain, key)`",
    note = "if this is a `Result`, add `?`"
)]
pub trait PemSource<T> {
    /// The source that each dial asks.
    fn into_source(self) -> Source<T>;
}

#[cfg(feature = "tls")]
macro_rules! fixed_pem {
    ($($pem:ty),*) => {
        $(impl PemSource<Vec<u8>> for $pem {
            fn into_source(self) -> Source<Vec<u8>> {
                Source::fixed(self.into())
            }
        })*
    };
}

#[cfg(feature = "tls")]
fixed_pem!(Vec<u8>, String, &[u8], &str);

#[cfg(feature = "tls")]
impl<const N: usize> PemSource<Vec<u8>> for &[u8; N] {
    fn into_source(self) -> Source<Vec<u8>> {
        Source::fixed(self.to_vec())
    }
}

#[cfg(feature = "tls")]
impl<F: Fn() -> io::Result<Vec<u8>> + Send + Sync + 'static> PemSource<Vec<u8>> for F {
    fn into_source(self) -> Source<Vec<u8>> {
        Source::asked(self)
    }
}

#[cfg(feature = "tls")]
impl<C: Into<Vec<u8>>, K: Into<Vec<u8>>> PemSource<(Vec<u8>, Vec<u8>)> for (C, K) {
    fn into_source(self) -> Source<(Vec<u8>, Vec<u8>)> {
        Source::fixed((self.0.into(), self.1.into()))
    }
}

#[cfg(feature = "tls")]
impl<F: Fn() -> io::Result<(Vec<u8>, Vec<u8>)> + Send + Sync + 'static> PemSource<(Vec<u8>, Vec<u8>)> for F {
    fn into_source(self) -> Source<(Vec<u8>, Vec<u8>)> {
        Source::asked(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use redis::IntoConnectionInfo;

    use super::*;

    /// Each password is used for two dials.
    #[test]
    fn law_10_the_latest_passwords_are_known_so_that_no_error_shows_them() {
        let dials = AtomicUsize::new(0);
        let next = move || Ok(("user", format!("password-{}", dials.fetch_add(1, Ordering::Relaxed) / 2)));
        let logins = Logins::from(next);
        let info = "redis://localhost".into_connection_info().unwrap();
        for dial in 0..2 * (KNOWN + 3) {
            let with_login = logins.apply(info.clone()).unwrap();
            assert_eq!(with_login.redis_settings().password(), logins.passwords().last().map(String::as_str));
            assert_eq!(logins.passwords().len(), KNOWN.min(dial / 2 + 1));
        }
        assert_eq!(logins.passwords()[0], "password-3");
    }
}
