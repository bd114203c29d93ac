//! The extractor of the peer's address.

use std::net::{IpAddr, SocketAddr};

use http::{Extensions, request::Parts};

use super::grouping::Grouping;
use crate::{
    error::{ConfigError, FirstMistake},
    key::{
        error::{KeyError, KeyFault},
        extractor::{KeyExtractor, KeyOrigin},
        subject::Key,
    },
};

/// Charges the address of the connection's peer.
///
/// * Each IPv4 address has its own key, also if an IPv6 address embeds it: mapped (`::ffff:a.b.c.d`), NAT64
///   (`64:ff9b::a.b.c.d`) or 6to4 (`2002::/16`).
/// * IPv6 addresses are grouped by prefix, /64 by default, because one customer usually has a whole /64.
/// * Each link-local address (`fe80::/10`) has its own key, because all hosts of a link share one /64.
///
/// Behind a proxy the peer is the proxy: use [`ClientIp`](crate::ClientIp).
///
/// The address is read from axum's `ConnectInfo<SocketAddr>` or `MockConnectInfo<SocketAddr>`, or from a [`SocketAddr`]
/// or [`IpAddr`] in the request's extensions. A request without any of these has the error
/// [`KeyError`] with the cause `no_peer`.
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::{Router, routing::get};
/// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_client = Policy::per_minute("per-client", 60)?;
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_client, PeerIp::new());
/// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
/// // Connection information provides the address:
/// let service = app.into_make_service_with_connect_info::<SocketAddr>();
/// # let _ = service;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PeerIp {
    grouping: Grouping,
    mistake: FirstMistake,
}

impl PeerIp {
    /// Creates the extractor of the peer's address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Groups IPv6 addresses by the first `length` bits. Defaults to 64, the smallest network that customers get.
    ///
    /// Another length than 32 to 128 is a mistake, which [`validated`](Self::validated) returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::PeerIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let per_site = PeerIp::new().with_ipv6_prefix(56).validated()?;
    /// # let _ = per_site;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_ipv6_prefix(self, length: u8) -> Self {
        self.with_grouping(|grouping| grouping.with_ipv6_prefix(length))
    }

    fn with_grouping(mut self, change: impl FnOnce(Grouping) -> Result<Grouping, ConfigError>) -> Self {
        self.grouping = self.mistake.keep(change(self.grouping)).unwrap_or(self.grouping);
        self
    }

    /// Returns the extractor, or the first mistake in its settings. A layer with the extractor
    /// [reports it too](crate::RateLimitLayer::validated), and refuses each request with 500.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: a prefix that is out of range.
    pub fn validated(self) -> Result<Self, ConfigError> {
        self.mistake.found()?;
        Ok(self)
    }

    /// Reads addresses in `prefix` as the IPv4 addresses that your own NAT64 translator has put there (RFC 6052).
    ///
    /// Write the prefix with its length: `"2001:db8:122::/96"`. Addresses in `64:ff9b::/96` are always read this way. A
    /// second call replaces the prefix of the first call. An address that embeds an IPv4 address that is not global
    /// (private, loopback and the like) is not decoded and has its own key.
    ///
    /// It is a mistake unless the length is 32, 40, 48, 56, 64 or 96 and bits 64 to 71 are 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, PeerIp};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let peer = PeerIp::new().with_nat64_prefix("2001:db8:122::/96").validated()?;
    /// assert_eq!(peer.key_of("2001:db8:122::203.0.113.7".parse()?), Key::from("203.0.113.7"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_nat64_prefix(self, prefix: &str) -> Self {
        self.with_grouping(|grouping| grouping.with_nat64_prefix(prefix))
    }

    /// Returns the key that requests from `address` are charged to, for [`Limiter::reset`](crate::Limiter::reset) and
    /// [`Limiter::peek`](crate::Limiter::peek).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy};
    ///
    /// # async fn lift(limiter: Limiter, policy: Policy) -> Result<(), Box<dyn std::error::Error>> {
    /// let client = "2001:db8:17::4711".parse()?;
    /// limiter.reset(PeerIp::new().key_of(client), &policy).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_of(&self, address: IpAddr) -> Key {
        self.grouping.key_of(address)
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.mistake.found()?;
        let address = peer(&parts.extensions).ok_or(KeyError(KeyFault::NoPeerAddress))?;
        Ok(Some(self.grouping.key_of(address)))
    }

    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Peer
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.mistake.found()
    }
}

/// The address of the connection's peer; `None` if the server does not provide it.
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
