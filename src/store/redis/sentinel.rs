//! A master that sentinels name.

use std::fmt;

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, RedisResult, TlsMode,
    aio::MultiplexedConnection,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};

use super::address::{self, Security, tcp_settings};

/// Sentinels, and the name of the master that they watch.
#[derive(Clone)]
pub(super) struct Sentinels {
    sentinels: Vec<ConnectionInfo>,
    /// Its "host" is the name; login, database and TLS are the master's.
    master: ConnectionInfo,
    name: String,
    #[cfg(feature = "tls")]
    security: Security,
}

impl Sentinels {
    /// Reads the sentinels' URLs, and the master's: a name, or a URL with the name in the place of the host.
    pub(super) fn new<'a>(
        sentinels: impl IntoIterator<Item = &'a str>,
        master: &str,
        security: &Security,
    ) -> RedisResult<Self> {
        let sentinels: Vec<_> =
            sentinels.into_iter().map(|url| address::info(url, security)).collect::<RedisResult<_>>()?;
        if sentinels.is_empty() {
            return Err(RedisError::from((ErrorKind::EmptySentinelList, "no sentinel")));
        }
        let master = match master.contains("://") {
            true => address::info(master, security)?,
            false => address::info("redis://unnamed", security)?.set_addr(ConnectionAddr::Tcp(master.to_owned(), 0)),
        };
        let name = match master.addr() {
            ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } if !name.is_empty() => {
                name.clone()
            }
            _ => return Err(RedisError::from((ErrorKind::InvalidClientConfig, "no name of a master"))),
        };
        let this = Self {
            sentinels,
            master,
            name,
            #[cfg(feature = "tls")]
            security: security.clone(),
        };
        this.client()?;
        Ok(this)
    }

    /// Asks the sentinels for the master, several at once, and dials it. It has to say itself that it is the master.
    pub(super) async fn dial(&self, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
        // Made anew: connections that it keeps would belong to another runtime, or to sentinels that have gone.
        let mut client = self.client()?;
        client.async_get_client().await?.get_multiplexed_async_connection_with_config(config).await
    }

    fn client(&self) -> RedisResult<SentinelClient> {
        let addresses: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.addr().clone()).collect();
        let mut builder = SentinelClientBuilder::new(addresses, &self.name, SentinelServerType::Master)?
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
