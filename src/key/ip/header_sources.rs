//! The constructors of [`ClientIp`], one for each header.

use std::fmt::Display;

use super::{
    client::{ClientIp, proxies},
    prefixes::PrefixList,
    resolver::AddressSource,
};
use crate::{error::ConfigError, key::header::header_name};

/// The proxies that are trusted: their prefixes, or how many of them a request passes. Not exported, because only this
/// crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no trusted proxies",
    label = "expected prefixes such as `[\"10.0.0.0/8\"]`, a `PrefixList`, or the number of proxies",
    note = "if this is a `Result`, add `?`"
)]
pub trait TrustedProxies {
    /// The extractor that reads `source`.
    fn reading(self, source: AddressSource) -> Result<ClientIp, ConfigError>;
}

impl<T: TryInto<PrefixList, Error: Display>> TrustedProxies for T {
    fn reading(self, source: AddressSource) -> Result<ClientIp, ConfigError> {
        Ok(ClientIp::new(source, proxies(self)?))
    }
}

impl TrustedProxies for usize {
    fn reading(self, source: AddressSource) -> Result<ClientIp, ConfigError> {
        ClientIp::with_hops(source, self)
    }
}

impl ClientIp {
    /// Charges the connection's peer and reads no header, like [`PeerIp`](super::PeerIp), with `exempt` and `deny`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::peer().exempt(["10.0.0.0/8"]);
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn peer() -> Self {
        Self::new(AddressSource::Peer, PrefixList::default())
    }

    /// Reads `X-Forwarded-For`, to which each proxy appends the address of its caller.
    ///
    /// `trusted` are the addresses of all your proxies, as this server and the other proxies see them. If they are not
    /// known, it is the number of the proxies, 1 to 64: the address at that place from the right is the client. The
    /// server must then provide the peer's address, but the address is **not** compared with trusted prefixes, so a
    /// number is safe only if clients cannot reach the port. Restrict the peers with [`only_from`](Self::only_from)
    /// where you can.
    ///
    /// # Errors
    ///
    /// The errors of [`PrefixList::new`], and [`ConfigError`] if the list is empty or the number is out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::x_forwarded_for(["10.0.0.0/8", "fd00::/8"])?;
    ///
    /// let behind_two = ClientIp::x_forwarded_for(2)?; // a CDN, then a load balancer
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn x_forwarded_for(trusted: impl TrustedProxies) -> Result<Self, ConfigError> {
        trusted.reading(AddressSource::XForwardedFor)
    }

    /// Reads `Forwarded` (RFC 7239), to which each proxy appends the address of its caller.
    ///
    /// `trusted` are the addresses of all your proxies, as this server and the other proxies see them, or the number of
    /// the proxies, with the warning of [`x_forwarded_for`](Self::x_forwarded_for). A header of more than 32 KiB is
    /// malformed.
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
    pub fn forwarded(trusted: impl TrustedProxies) -> Result<Self, ConfigError> {
        trusted.reading(AddressSource::Forwarded)
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
