//! Logins that are asked for at each dial.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::ConnectionInfo;

use super::source::Source;

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
