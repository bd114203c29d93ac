//! A master that sentinels name.

use std::{fmt, io, time::Duration};

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsMode,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::task::JoinSet;

use super::{
    address::Security,
    pace::LONGEST,
    url::{self, tcp_settings},
    words::Passwords,
};
use crate::{error::ConfigError, runtime::deadline::within};

/// Sentinels, and the name of the master that they watch.
#[derive(Clone)]
pub(super) struct Sentinels {
    sentinels: Vec<ConnectionInfo>,
    /// Its "host" is the name; login, database and TLS are the master's.
    master: ConnectionInfo,
    name: String,
    /// How long it may take to ask the sentinels.
    patience: Duration,
    #[cfg(feature = "tls")]
    security: Security,
}

/// To the sentinel and to the master that it names: each is connected to, greeted and asked for its role, and the
/// sentinel also for the master. With one to spare, because each may take as long as a check.
const ROUND_TRIPS: u32 = 8;

impl Sentinels {
    /// Reads the sentinels' URLs, and the master's: a name, or a URL with the name in the place of the host.
    pub(super) fn new(
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: &str,
        security: &Security,
        deadline: Duration,
    ) -> Result<Self, ConfigError> {
        let sentinels: Vec<_> =
            sentinels.into_iter().map(|url| url::read_any(url.as_ref(), security)).collect::<Result<_, _>>()?;
        if sentinels.is_empty() {
            return Err(url::invalid("there is no sentinel; give one at least"));
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
        let master = match master.contains("://") {
            true => url::read_any(master, security)?,
            // A login without a scheme would be taken for a part of the name, and shown with it.
            false if !master.chars().all(is_name) => {
                return Err(url::invalid(
                    "a master's name has letters, digits and the characters .-_; write redis://user:password@mymaster for \
                     a login",
                ));
            }
            false => url::read_any("redis://unnamed", security)?.set_addr(ConnectionAddr::Tcp(master.to_owned(), 0)),
        };
        let name = match master.addr() {
            ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } if !name.is_empty() => {
                name.clone()
            }
            _ => return Err(url::invalid("the master has no name; write \"mymaster\" or redis://mymaster")),
        };
        if !url::is_encrypted(&master) && sentinels.iter().any(url::is_encrypted) {
            return Err(ConfigError::PlaintextMaster { master: name });
        }
        security.check(&master)?;
        let this = Self {
            sentinels,
            master,
            name,
            patience: LONGEST.max(deadline.saturating_mul(ROUND_TRIPS)),
            #[cfg(feature = "tls")]
            security: security.clone(),
        };
        for sentinel in &this.sentinels {
            this.client(sentinel).map_err(|error| url::unreadable(&error))?;
        }
        Ok(this)
    }

    /// Asks all sentinels at the same time for the master, and returns the first that one of them names. It has to say
    /// itself that it is the master.
    pub(super) async fn master(&self) -> RedisResult<Client> {
        let late = || Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
        within(self.patience, self.ask()).await.unwrap_or_else(late)
    }

    /// Each by a client of its own: redis' own takes the answers in order, and the first sentinel may have gone without a
    /// word, with the machine that the master was on. Made anew: connections that they keep would belong to another
    /// runtime.
    async fn ask(&self) -> RedisResult<Client> {
        let mut asked = JoinSet::new();
        for sentinel in &self.sentinels {
            let mut client = self.client(sentinel)?;
            asked.spawn(async move { client.async_get_client().await });
        }
        let mut failure = RedisError::from((ErrorKind::EmptySentinelList, "no sentinel answered"));
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(master)) => return Ok(master),
                Ok(Err(error)) => failure = error,
                // The runtime ends.
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// What no error is to show.
    pub(super) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(self.sentinels.iter().chain([&self.master]))
    }

    fn client(&self, sentinel: &ConnectionInfo) -> RedisResult<SentinelClient> {
        let address = vec![sentinel.addr().clone()];
        let mut builder = SentinelClientBuilder::new(address, &self.name, SentinelServerType::Master)?
            .set_client_to_sentinel_tcp_settings(tcp_settings())
            .set_client_to_redis_tcp_settings(tcp_settings())
            .set_client_to_redis_db(self.master.redis_settings().db())
            .set_client_to_redis_protocol(self.master.redis_settings().protocol());
        if let Some(username) = self.master.redis_settings().username() {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = self.master.redis_settings().password() {
            builder = builder.set_client_to_redis_password(password);
        }
        // One login for all sentinels, as they need for one another.
        if let Some(username) = self.sentinels.first().and_then(|sentinel| sentinel.redis_settings().username()) {
            builder = builder.set_client_to_sentinel_username(username);
        }
        if let Some(password) = self.sentinels.first().and_then(|sentinel| sentinel.redis_settings().password()) {
            builder = builder.set_client_to_sentinel_password(password);
        }
        if let ConnectionAddr::TcpTls { insecure, .. } = self.master.addr() {
            let mode = if *insecure { TlsMode::Insecure } else { TlsMode::Secure };
            builder = builder.set_client_to_redis_tls_mode(mode);
            #[cfg(feature = "tls")]
            if let Some(certificates) = &self.security.certificates {
                builder = builder.set_client_to_redis_certificates(certificates.clone());
            }
        }
        builder.build()
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.name)?;
        f.debug_list().entries(self.sentinels.iter().map(|sentinel| sentinel.addr().to_string())).finish()
    }
}
