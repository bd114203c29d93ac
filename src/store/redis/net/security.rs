//! The TLS settings of all servers of a store.

#[cfg(feature = "tls")]
use std::{fmt, sync::OnceLock};

use redis::ConnectionInfo;

use super::endpoint::Endpoint;
#[cfg(feature = "tls")]
use super::tls::{Certificates, Tls};
use crate::error::ConfigError;

/// The certificates of a store. They are parsed once, for the first URL with TLS. Without the feature `tls` there are
/// none.
#[derive(Clone, Default)]
#[cfg_attr(not(feature = "tls"), derive(Debug))]
pub(crate) struct Security {
    #[cfg(feature = "tls")]
    certificates: Certificates,
    #[cfg(feature = "tls")]
    parsed: OnceLock<Tls>,
}

#[cfg(feature = "tls")]
impl Security {
    pub(crate) fn set_roots(&mut self, pem: Vec<u8>) {
        self.certificates.roots = Some(pem);
        self.parsed = OnceLock::new();
    }

    pub(crate) fn set_client(&mut self, chain: Vec<u8>, key: Vec<u8>) {
        self.certificates.client = Some((chain, key));
        self.parsed = OnceLock::new();
    }

    /// Adds the certificates to the address of a server, if it has TLS.
    pub(crate) fn endpoint(&self, info: ConnectionInfo) -> Result<Endpoint, ConfigError> {
        let plain = Endpoint { info, tls: None };
        let tls = if plain.is_encrypted() { Some(self.tls()?) } else { None };
        Ok(Endpoint { tls, ..plain })
    }

    fn tls(&self) -> Result<Tls, ConfigError> {
        match self.parsed.get() {
            Some(tls) => Ok(tls.clone()),
            None => {
                let tls = Tls::new(&self.certificates)?;
                Ok(self.parsed.get_or_init(|| tls).clone())
            }
        }
    }

    /// Refuses certificates for a server without TLS: the login would cross the network in clear.
    pub(crate) fn check(&self, endpoint: &Endpoint) -> Result<(), ConfigError> {
        match self.certificates.is_empty() || endpoint.is_encrypted() {
            true => Ok(()),
            false => Err(ConfigError::CertificatesWithoutTls),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Security {
    pub(crate) fn endpoint(&self, info: ConnectionInfo) -> Result<Endpoint, ConfigError> {
        Ok(Endpoint { info })
    }

    pub(crate) fn check(&self, _: &Endpoint) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// Shows which certificates are set, but none of their text.
#[cfg(feature = "tls")]
impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Certificates { roots, client } = &self.certificates;
        f.debug_struct("Security").field("roots", &roots.is_some()).field("client", &client.is_some()).finish()
    }
}
