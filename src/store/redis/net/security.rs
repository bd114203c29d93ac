//! The certificates and the logins of all servers of a store.

use std::fmt;
#[cfg(feature = "tls")]
use std::sync::{Arc, OnceLock};

use redis::ConnectionInfo;

use super::{endpoint::Endpoint, login::Logins};
#[cfg(feature = "tls")]
use super::{
    source::Source,
    tls::{Certificates, Tls},
};
use crate::error::ConfigError;

/// What the URLs of a store do not say. Certificates are parsed once, for the first URL with TLS. Without the feature
/// `tls` there are none.
#[derive(Clone, Default)]
pub(crate) struct Security {
    /// Replaces the logins in the URLs of servers.
    pub(crate) logins: Option<Logins>,
    /// Replaces the logins in the URLs of sentinels.
    pub(crate) sentinel_logins: Option<Logins>,
    #[cfg(feature = "tls")]
    certificates: Certificates,
    #[cfg(feature = "tls")]
    parsed: OnceLock<Arc<Tls>>,
}

#[cfg(feature = "tls")]
impl Security {
    pub(crate) fn set_roots(&mut self, roots: Source<Vec<u8>>) {
        self.certificates.roots = Some(roots);
        self.parsed = OnceLock::new();
    }

    pub(crate) fn set_client(&mut self, client: Source<(Vec<u8>, Vec<u8>)>) {
        self.certificates.client = Some(client);
        self.parsed = OnceLock::new();
    }

    /// Adds the login and the certificates to the address of a server, if it has TLS.
    pub(crate) fn endpoint(&self, info: ConnectionInfo) -> Result<Endpoint, ConfigError> {
        let plain = Endpoint::plain(info, self.logins.clone());
        let tls = if plain.is_encrypted() { Some(self.tls()?) } else { None };
        Ok(Endpoint { tls, ..plain })
    }

    fn tls(&self) -> Result<Arc<Tls>, ConfigError> {
        match self.parsed.get() {
            Some(tls) => Ok(Arc::clone(tls)),
            None => {
                let tls = Arc::new(Tls::new(&self.certificates)?);
                Ok(Arc::clone(self.parsed.get_or_init(|| tls)))
            }
        }
    }

    /// Refuses certificates for a server without TLS: the login would cross the network in clear.
    pub(crate) fn check(&self, endpoint: &Endpoint) -> Result<(), ConfigError> {
        match self.certificates.is_empty() || endpoint.is_encrypted() {
            true => Ok(()),
            false => Err(ConfigError::new(
                "certificates are set, but the URL is without TLS, so a password would be sent in plain text; write \
                 rediss:// instead of redis://, or leave the certificates out",
            )),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Security {
    pub(crate) fn endpoint(&self, info: ConnectionInfo) -> Result<Endpoint, ConfigError> {
        Ok(Endpoint::plain(info, self.logins.clone()))
    }

    pub(crate) fn check(&self, _: &Endpoint) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// Shows what is set, but none of its text.
impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Security");
        shown.field("logins", &self.logins.is_some());
        #[cfg(feature = "tls")]
        {
            let Certificates { roots, client } = &self.certificates;
            shown.field("roots", &roots.is_some()).field("client", &client.is_some());
        }
        shown.finish_non_exhaustive()
    }
}
