//! The address of a server, or of the sentinels that name it. An address is parsed once and dialled many times.

use std::fmt;

use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult};

#[cfg(feature = "sentinel")]
use super::sentinel::Sentinels;
use super::{
    error,
    redact::Passwords,
    tls_mismatch,
    url::{self, Security},
    wire::Wire,
};
use crate::error::{ConfigError, Error};

/// The address that a pool dials.
#[derive(Clone)]
pub(crate) enum Address {
    #[cfg(feature = "sentinel")]
    Sentinels(Box<Sentinels>),
    Server(Box<Client>),
}

impl Address {
    /// The address of the server at `url`.
    pub(crate) fn server(url: &str, security: &Security) -> Result<Self, ConfigError> {
        let client = Client::open(url::read(url, security)?).map_err(|error| url::unreadable(&error))?;
        Ok(Self::Server(Box::new(client)))
    }

    /// Dials once. Each dial looks the name up and asks the sentinels again.
    pub(crate) async fn dial(&self, config: AsyncConnectionConfig) -> RedisResult<Wire> {
        match self {
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => Wire::dial(&sentinels.master().await?, config).await,
            Self::Server(client) => Wire::dial(client, config).await,
        }
    }

    /// The error of a failed dial. If no dial has succeeded yet, a URL with the wrong scheme is detected as well.
    pub(crate) async fn dial_error(&self, error: &RedisError, has_succeeded: bool) -> Error {
        match self {
            Self::Server(client) if !has_succeeded => {
                tls_mismatch::dial_error(error, client.get_connection_info()).await
            }
            _ => error::convert_dial(error, &self.passwords()),
        }
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
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
            // The client's own `Debug` shows the password.
            Self::Server(client) => write!(f, "{}", client.get_connection_info().addr()),
        }
    }
}
