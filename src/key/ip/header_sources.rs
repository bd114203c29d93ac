//! The constructors of [`ClientIp`], one for each header.

use std::fmt::Display;

use super::{
    client::{ClientIp, proxies},
    prefixes::PrefixList,
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
    /// let client = ClientIp::peer().exempt(["10.0.0.0/8"]).validated()?;
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
    /// The errors of [`PrefixList::new`], and [`ConfigError`] if the list is empty.
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
    pub fn x_forwarded_for(trusted: impl TryInto<PrefixList, Error: Display>) -> Result<Self, ConfigError> {
        Ok(Self::new(AddressSource::XForwardedFor, proxies(trusted)?))
    }

    /// Reads the address at place `hops` from the right in `X-Forwarded-For`. Behind one proxy, `hops` is 1.
    ///
    /// Use this constructor if the addresses of the proxies are not known. The server must provide the peer's address,
    /// but the address is **not** compared with trusted prefixes, so the constructor is safe only if clients cannot
    /// reach the port. Restrict the peers with [`only_from`](Self::only_from) where you can.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] unless `hops` is 1 to 64.
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
    pub fn forwarded(trusted: impl TryInto<PrefixList, Error: Display>) -> Result<Self, ConfigError> {
        Ok(Self::new(AddressSource::Forwarded, proxies(trusted)?))
    }

    /// Reads the element at place `hops` from the right in `Forwarded`. The warning of
    /// [`x_forwarded_for_hops`](Self::x_forwarded_for_hops) applies.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] unless `hops` is 1 to 64.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = tollgate::ClientIp::forwarded_hops(1)?.only_from(["10.0.0.0/24"]).validated()?;
    /// # let _ = client;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn forwarded_hops(hops: usize) -> Result<Self, ConfigError> {
        Self::with_hops(AddressSource::Forwarded, hops)
    }

    /// Reads the header `name`, which contains one address. The proxies in `trusted` must overwrite the header that a
    /// client sends.
    ///
    /// | header | who sets it |
    /// | --- | --- |
    /// | `x-real-ip` | nginx, only with `proxy_set_header X-Real-IP $remote_addr;`; otherwise it passes on the header that the client has sent |
    /// | `cf-connecting-ip` | Cloudflare, see [`behind_cloudflare`](Self::behind_cloudflare); behind a tunnel, `trusted` is the address of `cloudflared` |
    /// | `fly-client-ip` | Fly.io, see [`behind_fly`](Self::behind_fly) |
    /// | `true-client-ip` | Akamai and Cloudflare, **if the option is turned on** there; otherwise they pass on the header that the client has sent, and this server cannot detect it |
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the name is not a valid header name, and the errors of
    /// [`x_forwarded_for`](Self::x_forwarded_for).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::header("x-real-ip", ["127.0.0.1", "::1"])?; // nginx on the same host
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "x_real_ip")]
    #[doc(alias = "cf_connecting_ip")]
    #[doc(alias = "fly_client_ip")]
    #[doc(alias = "true_client_ip")]
    pub fn header(name: &str, trusted: impl TryInto<PrefixList, Error: Display>) -> Result<Self, ConfigError> {
        Ok(Self::new(AddressSource::Single(header_name(name)?), proxies(trusted)?))
    }
}
