//! The constructors of [`ClientIp`]: one for each header, and presets for common deployments, each with its
//! assumptions.

use std::fmt::Display;

use http::HeaderName;

use super::client::{ClientIp, proxies};
use super::{prefixes::PrefixList, resolver::AddressSource};
use crate::{error::ConfigError, key::header::header_name};

impl ClientIp {
    /// Behind one load balancer or reverse proxy that appends to `X-Forwarded-For`: reads the rightmost address, and
    /// only on connections from `balancer`.
    ///
    /// Assumes exactly one proxy, which appends the address of its caller, as nginx (`$proxy_add_x_forwarded_for`),
    /// HAProxy (`option forwardfor`), Caddy, Traefik, Envoy (`use_remote_address`) and AWS' Application Load Balancer
    /// do. Unlike [`x_forwarded_for`](Self::x_forwarded_for), this preset never skips an address that is in
    /// `balancer`, so a caller from the balancer's own network cannot pretend to have another address.
    ///
    /// The balancer's own health checks do not have the header and are refused with 400: exempt their route, or add
    /// [`peer_if_missing`](Self::peer_if_missing).
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
    /// let client = ClientIp::behind_load_balancer(["10.0.0.0/24"])?.peer_if_missing();
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "behind_nginx")]
    pub fn behind_load_balancer(balancer: impl TryInto<PrefixList, Error: Display>) -> Result<Self, ConfigError> {
        Self::with_hops(AddressSource::XForwardedFor, 1)?.only_from(balancer).validated()
    }

    /// Behind a proxy on the same host that connects through a unix socket and appends to `X-Forwarded-For`: reads the
    /// rightmost address.
    ///
    /// Assumes that only the proxy may open the socket. A TCP connection is charged to its peer's address, whatever
    /// header the peer sends. Do not use this preset with a server that does not provide peer addresses, because its
    /// connections look like those of a unix socket.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = tollgate::ClientIp::behind_unix_socket();
    /// # let _ = client;
    /// ```
    pub fn behind_unix_socket() -> Self {
        Self::new(AddressSource::XForwardedFor, PrefixList::default()).trust_unix_peer()
    }

    /// Behind Cloudflare: reads `CF-Connecting-IP` on connections from [`PrefixList::cloudflare`].
    ///
    /// Assumes that Cloudflare connects to this server directly. Behind a tunnel, use
    /// [`header("cf-connecting-ip", ..)`](Self::header) with the tunnel's address. Behind your own proxy, use it with
    /// the proxy's address, and let the proxy accept connections from Cloudflare alone. Assumes also that no Managed
    /// Transform removes the header (such requests are refused, with the cause `missing_header`), and that your own
    /// Workers do not change the header. All Workers of other zones have the address `2a06:98c0:3600::103`, so they
    /// are one client.
    ///
    /// All customers of Cloudflare share its addresses, so another customer's zone can send requests to your server.
    /// Cloudflare sets the header in every zone, but another zone does not apply your rules. Keep such requests out
    /// with authenticated origin pulls.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = tollgate::ClientIp::behind_cloudflare();
    /// # let _ = client;
    /// ```
    pub fn behind_cloudflare() -> Self {
        Self::new(AddressSource::Single(CF_CONNECTING_IP), PrefixList::cloudflare())
    }

    /// Behind Fly.io's proxy: reads `Fly-Client-IP` on connections from `172.16.0.0/12`, from which the proxy calls
    /// machines.
    ///
    /// Assumes a service with Fly.io's HTTP handler, which overwrites a header that the client sends. Other machines of
    /// your organisation connect through the private network, `fdaa::/16`, and are clients themselves. With another CDN
    /// in front of Fly.io, the header contains the CDN's address.
    ///
    /// # Examples
    ///
    /// ```
    /// let client = tollgate::ClientIp::behind_fly();
    /// # let _ = client;
    /// ```
    pub fn behind_fly() -> Self {
        Self::new(AddressSource::Single(FLY_CLIENT_IP), fixed(&["172.16.0.0/12"]))
    }
}

const CF_CONNECTING_IP: HeaderName = HeaderName::from_static("cf-connecting-ip");
const FLY_CLIENT_IP: HeaderName = HeaderName::from_static("fly-client-ip");

impl PrefixList {
    /// Creates the set of the addresses from which Cloudflare connects to origins: <https://www.cloudflare.com/ips>, as
    /// of September 2023.
    ///
    /// The set is a copy and does not update itself. Cloudflare publishes new ranges before it uses them. If a range is
    /// missing here, all clients behind one of its addresses share a key: they are refused too early, never too late.
    /// If Cloudflare gives a range away, the new owner can forge addresses. To follow the list, fetch it when you
    /// deploy and use [`ClientIp::header`] with `cf-connecting-ip`.
    ///
    /// # Examples
    ///
    /// The header is read from Cloudflare and from your own load balancer:
    ///
    /// ```
    /// use tollgate::{ClientIp, key::PrefixList};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::header(
    ///     "cf-connecting-ip",
    ///     PrefixList::cloudflare().and(["10.0.0.0/24"]),
    /// )?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cloudflare() -> Self {
        fixed(&[
            "103.21.244.0/22",
            "103.22.200.0/22",
            "103.31.4.0/22",
            "104.16.0.0/13",
            "104.24.0.0/14",
            "108.162.192.0/18",
            "131.0.72.0/22",
            "141.101.64.0/18",
            "162.158.0.0/15",
            "172.64.0.0/13",
            "173.245.48.0/20",
            "188.114.96.0/20",
            "190.93.240.0/20",
            "197.234.240.0/22",
            "198.41.128.0/17",
            "2400:cb00::/32",
            "2405:8100::/32",
            "2405:b500::/32",
            "2606:4700::/32",
            "2803:f800::/32",
            "2a06:98c0::/29",
            "2c0f:f248::/32",
        ])
    }
}

/// Creates the list of prefixes that are fixed in this file.
fn fixed(prefixes: &[&str]) -> PrefixList {
    PrefixList::new(prefixes).expect("the prefixes of this file are well-formed")
}

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
    /// // nginx on the same host:
    /// let client = ClientIp::header("x-real-ip", ["127.0.0.1", "::1"])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_are_well_formed() {
        assert!(PrefixList::cloudflare().contains("173.245.48.9".parse().unwrap()));
        assert!(PrefixList::cloudflare().contains("2a06:98c7:ffff::1".parse().unwrap()));
        assert!(!PrefixList::cloudflare().contains("172.16.0.2".parse().unwrap()));
        let _ = (ClientIp::behind_cloudflare(), ClientIp::behind_fly());
    }
}
