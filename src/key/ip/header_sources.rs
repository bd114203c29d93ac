//! The constructors of [`ClientIp`], one for each header.

use super::{
    client::{ClientIp, proxies},
    prefixes::{IntoPrefixes, PrefixList},
    resolver::AddressSource,
};
use crate::{error::ConfigError, key::header::header_name};

impl ClientIp {
    /// Charges the connection's peer and reads no header, like [`PeerIp`](super::PeerIp), with `exempt` and `deny`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::peer().exempt(["10.0.0.0/8"])?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn peer() -> Self {
        Self::new(AddressSource::Peer, PrefixList::default())
    }

    /// Reads `X-Forwarded-For`, to which each proxy appends the address of its caller.
    ///
    /// `trusted` are the addresses of all your proxies, as this server and the other proxies see them.
    ///
    /// # Errors
    ///
    /// The errors of [`PrefixList::new`], and [`ConfigError::NoTrustedProxy`] if the list is empty.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::x_forwarded_for(["10.0.0.0/8", "fd00::/8"])?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn x_forwarded_for(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self::new(AddressSource::XForwardedFor, proxies(trusted)?))
    }

    /// Reads `X-Forwarded-For` and takes the address at place `hops` from the right: 1 behind one proxy.
    ///
    /// Use it where the addresses of the proxies are not known. The peer's address must be known, but is **not**
    /// compared with anything, so this is safe only if clients cannot reach the port. Restrict the peers with
    /// [`only_from`](Self::only_from) where you can.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHops`] unless `hops` is 1 to 64.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::x_forwarded_for_hops(2)?; // a CDN, then a load balancer
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn x_forwarded_for_hops(hops: usize) -> Result<Self, ConfigError> {
        Self::with_hops(AddressSource::XForwardedFor, hops)
    }

    /// Reads `Forwarded` (RFC 7239), to which each proxy appends the address of its caller.
    ///
    /// `trusted` are the addresses of all your proxies, as this server and the other proxies see them. A header of more
    /// than 32 KiB is malformed.
    ///
    /// # Errors
    ///
    /// The errors of [`x_forwarded_for`](Self::x_forwarded_for).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::forwarded(["192.0.2.1"])?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn forwarded(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self::new(AddressSource::Forwarded, proxies(trusted)?))
    }

    /// Reads `Forwarded` and takes the element at place `hops` from the right. The warning of
    /// [`x_forwarded_for_hops`](Self::x_forwarded_for_hops) applies.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHops`] unless `hops` is 1 to 64.
    pub fn forwarded_hops(hops: usize) -> Result<Self, ConfigError> {
        Self::with_hops(AddressSource::Forwarded, hops)
    }

    /// Reads `X-Real-IP`, one address. nginx sends it only with `proxy_set_header X-Real-IP $remote_addr`, and
    /// otherwise passes on the header that the client has sent.
    ///
    /// # Errors
    ///
    /// The errors of [`x_forwarded_for`](Self::x_forwarded_for).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::x_real_ip(["127.0.0.1", "::1"])?; // nginx on the same host
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn x_real_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("x-real-ip", trusted)
    }

    /// Reads `CF-Connecting-IP`, one address, which Cloudflare sets; see
    /// [`behind_cloudflare`](Self::behind_cloudflare).
    ///
    /// # Errors
    ///
    /// The errors of [`x_forwarded_for`](Self::x_forwarded_for).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::cf_connecting_ip(["127.0.0.1"])?; // cloudflared on the same host
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cf_connecting_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("cf-connecting-ip", trusted)
    }

    /// Reads `True-Client-IP`, one address, which Akamai and Cloudflare set **if it is turned on** there. If it is off,
    /// the client's own header passes, and nothing in the request shows it.
    ///
    /// # Errors
    ///
    /// The errors of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn true_client_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("true-client-ip", trusted)
    }

    /// Reads `Fly-Client-IP`, one address, which Fly.io sets; see [`behind_fly`](Self::behind_fly).
    ///
    /// # Errors
    ///
    /// The errors of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn fly_client_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("fly-client-ip", trusted)
    }

    /// Reads the header `name`, which contains one address. The proxies in `trusted` must overwrite the header that a
    /// client sends.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHeaderName`], and the errors of [`x_forwarded_for`](Self::x_forwarded_for).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::header("fastly-client-ip", ["10.0.0.0/8"])?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn header(name: &str, trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self::new(AddressSource::Single(header_name(name)?), proxies(trusted)?))
    }
}
