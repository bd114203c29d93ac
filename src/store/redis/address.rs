//! Where Redis is, and how to speak to it: read once, dialled often.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

#[cfg(feature = "tls")]
use redis::TlsCertificates;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisError, RedisResult, aio::MultiplexedConnection};

#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
#[cfg(feature = "tls")]
use super::tls;
use super::{encryption, error, resp, url, words::Passwords};
use crate::error::{ConfigError, Error};

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

#[cfg(feature = "tls")]
impl Security {
    /// Puts the certificates into the address of a server that is spoken to through TLS.
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ConfigError> {
        if !url::is_encrypted(&info) {
            return Ok(info);
        }
        tls::provide_cryptography();
        match &self.certificates {
            Some(certificates) => tls::with_certificates(info, certificates),
            None => Ok(info),
        }
    }

    /// Refuses certificates for a server that is spoken to without TLS: the login would go over the network in clear.
    pub(super) fn check(&self, info: &ConnectionInfo) -> Result<(), ConfigError> {
        match &self.certificates {
            Some(_) if !url::is_encrypted(info) => Err(ConfigError::CertificatesWithoutTls),
            _ => Ok(()),
        }
    }
}

/// Without TLS there are no certificates.
#[cfg(not(feature = "tls"))]
impl Security {
    pub(super) fn apply(&self, info: ConnectionInfo) -> Result<ConnectionInfo, ConfigError> {
        Ok(info)
    }

    pub(super) fn check(&self, _: &ConnectionInfo) -> Result<(), ConfigError> {
        Ok(())
    }
}

impl Address {
    pub(super) fn server(url: &str, security: &Security) -> Result<Self, ConfigError> {
        let client = Client::open(url::read(url, security)?).map_err(|error| url::unreadable(&error))?;
        Ok(Self::Server(Box::new(client)))
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

    /// The error of a dial that failed; before the `first` one has succeeded, with a look at what the server speaks.
    pub(super) async fn failure_of(&self, error: &RedisError, first: bool) -> Error {
        match self {
            Self::Server(client) if first => encryption::failure_of(error, client.get_connection_info()).await,
            _ => error::convert_dial(error, &self.passwords()),
        }
    }

    /// What no error is to show.
    pub(super) fn passwords(&self) -> Passwords<'_> {
        match self {
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.passwords(),
            Self::Server(client) => Passwords::of([client.get_connection_info()]),
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
