//! The address of a server, or of the sentinels that name it, and the settings that all connections of a store share.
//! An address is parsed once and dialled many times.

use std::{fmt, time::Duration};

use redis::{Cmd, RedisError, RedisResult};

use super::endpoint::{Endpoint, Security};
use super::url::{self, Sentinels};
use super::{
    error, first_dial::DialProgress, master_search::dial_master, redact::Passwords, silence::Servers, wire::Wire,
};
use crate::error::{ConfigError, Error};

/// The address that a pool dials.
#[derive(Clone)]
pub(crate) enum Address {
    Sentinels(Box<Sentinels>),
    Server(Box<Endpoint>),
}

impl Address {
    /// The address of the server at `url`.
    pub(crate) fn server(url: &str, security: &Security) -> Result<Self, ConfigError> {
        Ok(Self::Server(Box::new(url::read(url, security)?)))
    }

    /// Dials once. Each dial looks the name up and asks the sentinels again.
    pub(crate) async fn dial(&self, progress: DialProgress) -> RedisResult<Wire> {
        match self {
            Self::Sentinels(sentinels) => dial_master(sentinels, &progress).await,
            Self::Server(endpoint) => Wire::dial(endpoint, &progress).await,
        }
    }

    /// The name of the server among those of its store. The master that sentinels name has one name.
    pub(super) fn name(&self) -> String {
        format!("{self:?}")
    }

    /// The error of a failed dial.
    pub(crate) fn dial_error(&self, error: &RedisError) -> Error {
        error::convert_dial(error, &self.passwords())
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        match self {
            Self::Sentinels(sentinels) => sentinels.passwords(),
            Self::Server(endpoint) => endpoint.passwords(),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sentinels(sentinels) => sentinels.fmt(f),
            Self::Server(endpoint) => write!(f, "{}", endpoint.info.addr()),
        }
    }
}

/// The settings of all connections.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long a command waits for its reply.
    pub(crate) deadline: Duration,
    /// How long checks wait for the first dial of a server.
    pub(crate) first_dial_deadline: Duration,
    /// Creates the command that is sent once to each server, ahead of all others, on its first connection.
    pub(crate) first_command: fn() -> Cmd,
    pub(crate) servers: Servers,
}
