//! Finds a master through its sentinels.

use std::{fmt, io, time::Duration};

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsMode,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::task::JoinSet;

use super::{
    backoff::MAX_PAUSE,
    redact::Passwords,
    url::{self, Security, tcp_settings},
};
use crate::{error::ConfigError, runtime::deadline::within};

/// Sentinels and the name of the master that they monitor.
#[derive(Clone)]
pub(crate) struct Sentinels {
    sentinels: Vec<ConnectionInfo>,
    /// The login, database and TLS settings of the master. Its "host" is the master's name.
    master: ConnectionInfo,
    name: String,
    /// Time for a lookup of the master.
    timeout: Duration,
    #[cfg(feature = "tls")]
    security: Security,
}

/// Round trips of a lookup, each of which may take as long as a check. The sentinel and the master are each connected
/// to, greeted and asked for the role; the sentinel is also asked for the master. One round trip is a reserve.
const ROUND_TRIPS: u32 = 8;

impl Sentinels {
    /// Parses the URLs of the sentinels, and `master`: a name, or a URL with the name in place of the host.
    pub(crate) fn new(
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: &str,
        security: &Security,
        deadline: Duration,
    ) -> Result<Self, ConfigError> {
        let sentinels: Vec<_> =
            sentinels.into_iter().map(|url| url::read_any(url.as_ref(), security)).collect::<Result<_, _>>()?;
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
            timeout: MAX_PAUSE.max(deadline.saturating_mul(ROUND_TRIPS)),
            #[cfg(feature = "tls")]
            security: security.clone(),
        };
        for sentinel in &this.sentinels {
            this.client(sentinel).map_err(|error| url::unreadable(&error))?;
        }
        Ok(this)
    }

    /// Asks all sentinels at the same time for the master. Returns the first server that a sentinel names and that
    /// reports the role of a master.
    pub(crate) async fn master(&self) -> RedisResult<Client> {
        let late = || Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
        within(self.timeout, self.ask()).await.unwrap_or_else(late)
    }

    /// Asks each sentinel with a client of its own. A single client asks the sentinels in order, and the first one may
    /// be lost together with the machine of the master. The clients are new, because connections belong to the current
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
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
        Err(failure)
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
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
        // All sentinels have the same login, because they log in to each other.
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
