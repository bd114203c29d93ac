//! The addresses of sentinels, and the name of the master that they monitor.

use std::fmt;

use redis::ConnectionAddr;

use super::{
    endpoint::{Announcer, Endpoint, Security},
    followed::Followed,
    redact::Passwords,
    url,
};
use crate::error::ConfigError;

/// Sentinels and the name of the master that they monitor.
#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(super) sentinels: Vec<Endpoint>,
    /// The login, database and TLS settings of the master. Its "host" is the master's name.
    master: Endpoint,
    pub(super) followed: Followed,
}

impl Sentinels {
    /// Parses the URLs of the sentinels, and `master`: a name, or a URL with the name in place of the host.
    pub(crate) fn new(
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: &str,
        security: &Security,
    ) -> Result<Self, ConfigError> {
        let sentinel = |url: &str| {
            let logins = security.sentinel_logins.clone();
            url::read_any(url, security).map(|endpoint| Endpoint { logins, ..endpoint })
        };
        let sentinels: Vec<_> = sentinels.into_iter().map(|url| sentinel(url.as_ref())).collect::<Result<_, _>>()?;
        if sentinels.is_empty() {
            return Err(url::invalid("there is no sentinel; give the URL of at least one"));
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
        let master = match master.contains("://") {
            true => url::read_any(master, security)?,
            // A login without a scheme would become part of the name, and errors show the name.
            false if !master.chars().all(is_name) => {
                return Err(url::invalid(
                    "a master's name has letters, digits and the characters .-_; write redis://user:password@mymaster \
                     for a login",
                ));
            }
            false => url::read_any("redis://unnamed", security)?.on_host(master.to_owned(), 0, None),
        };
        if master.host().is_empty() {
            return Err(url::invalid("the master has no name; write \"mymaster\" or redis://mymaster"));
        }
        if !master.is_encrypted() && sentinels.iter().any(Endpoint::is_encrypted) {
            let name = master.host();
            return Err(ConfigError::new(format!(
                "the sentinels are reached through TLS, but their master {name:?} is not, so a password would be sent \
                 in plain text; write rediss://{name} for the master"
            )));
        }
        security.check(&master)?;
        if sentinels.iter().any(|sentinel| matches!(sentinel.info.addr(), ConnectionAddr::Unix(_))) {
            return Err(url::invalid("sentinels are reached by TCP; write redis://host:26379"));
        }
        Ok(Self { sentinels, master, followed: Followed::default() })
    }

    /// The sentinels' name of the master.
    pub(super) fn name(&self) -> &str {
        self.master.host()
    }

    /// The server that a sentinel names as the master.
    pub(super) fn master_at(&self, host: String, port: u16) -> Endpoint {
        self.master.on_host(host, port, Some(Announcer::Sentinel))
    }

    /// Whether this number of sentinels is more than half of all.
    pub(super) fn are_most(&self, number: usize) -> bool {
        number > self.sentinels.len() / 2
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(self.sentinels.iter().chain([&self.master]).flat_map(Endpoint::secrets))
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.master.host())?;
        f.debug_list().entries(self.sentinels.iter().map(|sentinel| sentinel.info.addr().to_string())).finish()
    }
}
