//! The address of the connection's other end.

use std::net::{IpAddr, SocketAddr};

use http::{Extensions, request::Parts};

use super::grouping::Grouping;
use crate::{
    error::ConfigError,
    key::{
        error::KeyError,
        extractor::{KeyExtractor, KeyOrigin},
        subject::Key,
    },
};

/// Charges the address of the connection's other end.
///
/// IPv4 addresses are charged one by one, also when they come within IPv6: `::ffff:a.b.c.d`, `64:ff9b::a.b.c.d` of
/// NAT64, `2002::/16` of 6to4. IPv6 addresses are grouped by prefix, /64 by default, because one customer usually has a
/// whole one. Link-local addresses (`fe80::/10`) are charged one by one, because all hosts of a link share one /64.
/// Behind a proxy, the other end is the proxy: use [`ClientIp`](super::ClientIp).
///
/// The address is taken from axum's `ConnectInfo<SocketAddr>` or `MockConnectInfo<SocketAddr>`, or from a
/// [`SocketAddr`] or [`IpAddr`] in the request's extensions. Without any of them the answer is
/// [`KeyError::NoPeerAddress`].
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerIp {
    grouping: Grouping,
}

impl PeerIp {
    /// Groups IPv6 addresses by the first `length` bits. Defaults to 64.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidPrefixLength`] unless `length` is 32 to 128.
    pub fn with_ipv6_prefix(self, length: u8) -> Result<Self, ConfigError> {
        Ok(Self { grouping: self.grouping.with_ipv6_prefix(length)? })
    }

    /// Reads addresses in `prefix` as the IPv4 addresses that a NAT64 translator of yours has put there (RFC 6052).
    ///
    /// Write it with its length: `"2001:db8:122::/96"`. `64:ff9b::/96` is always read so. A second call replaces the
    /// first one's prefix. Addresses that carry no global IPv4 address (private, loopback and the like) are not
    /// decoded, and are charged one by one.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidNat64Prefix`] unless its length is 32, 40, 48, 56, 64 or 96 and bits 64 to 71 are 0.
    pub fn with_nat64_prefix(self, prefix: &str) -> Result<Self, ConfigError> {
        Ok(Self { grouping: self.grouping.with_nat64_prefix(prefix)? })
    }

    /// The key that requests from `address` are charged to, to [reset](crate::Limiter::reset) or to peek at it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy};
    ///
    /// # async fn lift(limiter: Limiter, policy: Policy) -> Result<(), Box<dyn std::error::Error>> {
    /// let client = "2001:db8:17::4711".parse()?;
    /// limiter.reset(PeerIp::default().key_of(client), &policy).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_of(&self, address: IpAddr) -> Key {
        self.grouping.key_of(address)
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let address = peer(&parts.extensions).ok_or(KeyError::NoPeerAddress)?;
        Ok(Some(self.grouping.key_of(address)))
    }

    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Peer
    }
}

pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    connect_info(extensions)
        .or_else(|| extensions.get::<SocketAddr>().map(SocketAddr::ip))
        .or_else(|| extensions.get::<IpAddr>().copied())
}

#[cfg(feature = "axum")]
fn connect_info(extensions: &Extensions) -> Option<IpAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let real = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    real.or_else(|| extensions.get::<MockConnectInfo<SocketAddr>>().map(|info| info.0)).map(|address| address.ip())
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Extensions) -> Option<IpAddr> {
    None
}
