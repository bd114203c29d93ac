//! The extractor of the peer's address.

use std::net::{IpAddr, SocketAddr};

use http::{Extensions, request::Parts};

use super::grouping::Grouping;
use crate::key::error::{KeyError, KeyFault};
use crate::key::extractor::{KeyExtractor, KeyOrigin};
use crate::key::subject::Key;

/// Charges the address of the connection's peer.
///
/// * Each IPv4 address has its own key, also if an IPv6 address embeds it: mapped (`::ffff:a.b.c.d`), NAT64
///   (`64:ff9b::a.b.c.d`) or 6to4 (`2002::/16`).
/// * IPv6 addresses are grouped by /64, because one customer usually has a whole /64.
/// * Each link-local address (`fe80::/10`) has its own key, because all hosts of a link share one /64.
///
/// Behind a proxy the peer is the proxy: use [`ClientIp`](crate::ClientIp). For another prefix, your own NAT64 and
/// lists of addresses, use [`ClientIp::peer`](crate::ClientIp::peer), which charges the same address.
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
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     per_client,
///     PeerIp::new(),
/// );
/// let app: Router = Router::new().route("/", get(|| async {})).layer(limit);
/// // Connection information provides the address:
/// let service = app.into_make_service_with_connect_info::<SocketAddr>();
/// # let _ = service;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PeerIp(());

impl PeerIp {
    /// Creates the extractor of the peer's address.
    pub fn new() -> Self {
        Self::default()
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
        Grouping::default().key_of(address)
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let address = peer(&parts.extensions).ok_or(KeyError(KeyFault::NoPeerAddress))?;
        Ok(Some(self.key_of(address)))
    }

    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Peer
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
