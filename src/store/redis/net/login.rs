//! Logins that are asked for at each dial.

use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redis::ConnectionInfo;

use super::source::Source;

/// A login of Redis, for [`RedisStoreBuilder::login_from`](crate::store::RedisStoreBuilder::login_from).
///
/// `Debug` does not show the password.
///
/// # Examples
///
/// ```
/// use tollgate::store::Login;
///
/// let login = Login::new("gate", "hunter2");
/// assert_eq!(format!("{login:?}"), r#"Login { user: Some("gate"), .. }"#);
/// ```
#[derive(Clone)]
pub struct Login {
    user: Option<String>,
    password: String,
}

impl Login {
    /// The login of an ACL user.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// The login of the user that the URL names, or of the default user, whose password is the server's `requirepass`.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

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
    pub(crate) fn from(source: impl Fn() -> io::Result<Login> + Send + Sync + 'static) -> Self {
        Self { source: Source::asked(source), known: Arc::default() }
    }

    /// The address with the present login.
    pub(crate) fn apply(&self, info: ConnectionInfo) -> io::Result<ConnectionInfo> {
        let failed = |error| io::Error::new(io::ErrorKind::InvalidData, format!("login_from has failed: {error}"));
        let Login { user, password } = &*self.source.get().map_err(failed)?;
        let mut known = self.known();
        if known.back() != Some(password) {
            known.push_back(password.clone());
        }
        while known.len() > KNOWN {
            known.pop_front();
        }
        let settings = info.redis_settings().clone().set_password(password);
        Ok(match user {
            Some(user) => info.set_redis_settings(settings.set_username(user)),
            None => info.set_redis_settings(settings),
        })
    }

    pub(crate) fn passwords(&self) -> Vec<String> {
        self.known().iter().cloned().collect()
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<String>> {
        // A panic under the lock leaves valid passwords.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
