//! Where Redis is, and how to speak to it: read from URLs once, dialled often.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

#[cfg(feature = "tls")]
use redis::TlsCertificates;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, RedisError, RedisResult,
    aio::MultiplexedConnection,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};

use super::resp;
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;

/// Who is dialled.
#[derive(Clone)]
pub(super) enum Address {
    #[cfg(feature = "sentinel")]
    Sentinels(Box<Sentinels>),
    Server(Box<Client>),
}

/// What holds for all addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Security {
    #[cfg(feature = "tls")]
    pub(super) certificates: Option<TlsCertificates>,
}

impl Address {
    pub(super) fn server(url: &str, security: &Security) -> Result<Self, RedisError> {
        Ok(Self::Server(Box::new(Client::open(info(url, security)?)?)))
    }

    /// Dials once: a name is looked up, and sentinels are asked, anew each time.
    ///
    /// `closed` becomes true when the server closes the connection, also while no command is under way.
    pub(super) async fn dial(
        &self,
        config: AsyncConnectionConfig,
        closed: &Arc<AtomicBool>,
    ) -> RedisResult<MultiplexedConnection> {
        match self {
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => {
                let master = sentinels.master().await?;
                resp::dial(&master, config, closed).await
            }
            Self::Server(client) => resp::dial(client, config, closed).await,
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.fmt(f),
            // The client's own output would show the password.
            Self::Server(client) => write!(f, "{}", client.get_connection_info().addr()),
        }
    }
}

/// Reads a URL, checks that this build can speak to it, and sets up its sockets.
pub(super) fn info(url: &str, security: &Security) -> Result<ConnectionInfo, RedisError> {
    #[cfg(not(feature = "tls"))]
    if url.starts_with("rediss:") || url.starts_with("valkeys:") {
        // redis would say so of a feature of its own.
        return Err(RedisError::from((redis::ErrorKind::InvalidClientConfig, "TLS needs tollgate's feature `tls`")));
    }
    let info = resp::preferred(url.into_connection_info()?.set_tcp_settings(tcp_settings()), url);
    secure(info, security)
}

#[cfg(feature = "tls")]
fn secure(info: ConnectionInfo, security: &Security) -> Result<ConnectionInfo, RedisError> {
    if !super::tls::is_encrypted(info.addr()) {
        return Ok(info);
    }
    super::tls::provide_cryptography();
    match &security.certificates {
        Some(certificates) => super::tls::with_certificates(info, certificates),
        None => Ok(info),
    }
}

#[cfg(not(feature = "tls"))]
fn secure(info: ConnectionInfo, _: &Security) -> Result<ConnectionInfo, RedisError> {
    Ok(info)
}

#[cfg(target_os = "linux")]
/// After so long without a sign of life a peer is taken for gone; checks stop waiting much sooner.
const GONE: Duration = Duration::from_secs(3);

/// The kernel's own timeouts are a quarter of an hour and two hours.
pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(5));
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let keepalive = keepalive.with_interval(Duration::from_secs(1)).with_retries(3);
    // Nagle's algorithm would hold a small request back until the answer to the one before it has come.
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(GONE);
    settings
}
