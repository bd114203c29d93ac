//! Presets for common places, each with what it assumes.

use http::HeaderName;

use super::{
    client::ClientIp,
    prefixes::{IntoPrefixes, PrefixList},
    resolver::AddressSource,
};
use crate::error::ConfigError;

impl ClientIp {
    /// Behind one load balancer or reverse proxy that appends to `X-Forwarded-For`: the rightmost address, and only from
    /// a connection of `balancer`.
    ///
    /// Assumes that there is exactly one hop, and that it appends the address of its caller, as nginx
    /// (`$proxy_add_x_forwarded_for`), HAProxy (`option forwardfor`), Caddy, Traefik, Envoy (`use_remote_address`) and
    /// AWS' Application Load Balancer do. Unlike [`x_forwarded_for`](Self::x_forwarded_for), it never steps over an
    /// address because it is in `balancer`, so that a caller from the balancer's own network cannot put another address
    /// before its own.
    ///
    /// The balancer's own health checks have no such header and are refused with 400: exempt their route, or add
    /// [`peer_if_missing`](Self::peer_if_missing).
    ///
    /// # Errors
    ///
    /// Those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn behind_load_balancer(balancer: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::with_hops(AddressSource::XForwardedFor, 1)?.only_from(balancer)
    }

    /// Behind a proxy on the same host that calls through a unix socket and appends to `X-Forwarded-For`: the rightmost
    /// address.
    ///
    /// Assumes that only the proxy may open the socket. A connection with an address, by TCP, is charged as that
    /// address, whatever header it sends. A server that does not know its peers' addresses looks the same as one on a
    /// unix socket, so use it with no other.
    pub fn behind_unix_socket() -> Self {
        Self::new(AddressSource::XForwardedFor, PrefixList::default()).trust_unix_peer()
    }

    /// Behind Cloudflare: `CF-Connecting-IP`, from connections of [`PrefixList::cloudflare`].
    ///
    /// Assumes that Cloudflare connects to this server itself. Behind a tunnel, use
    /// [`cf_connecting_ip`](Self::cf_connecting_ip) with its address; with a proxy of yours in between, the same with
    /// that proxy's, which has to let in Cloudflare alone. Assumes also that no Managed Transform removes
    /// the header (it would be [`KeyError::MissingHeader`](crate::key::KeyError::MissingHeader)), and that your own Workers
    /// do not change it. Workers of other zones all come as `2a06:98c0:3600::103`, one client.
    ///
    /// Cloudflare's addresses are shared by all of its customers. The header is theirs whichever zone the request came
    /// through, but another customer's zone has none of the rules of yours: authenticated origin pulls keep those out.
    pub fn behind_cloudflare() -> Self {
        Self::new(AddressSource::Single(CF_CONNECTING_IP), PrefixList::cloudflare())
    }

    /// Behind Fly.io's proxy: `Fly-Client-IP`, from connections of `172.16.0.0/12`, which is where the proxy calls a
    /// machine from.
    ///
    /// Assumes a service with the HTTP handler, which sets the header and throws a client's own away. Other machines of
    /// your organisation come by the private network, `fdaa::/16`, and are clients themselves. Behind another CDN in
    /// front of Fly.io, the header names that CDN.
    pub fn behind_fly() -> Self {
        Self::new(AddressSource::Single(FLY_CLIENT_IP), known(&["172.16.0.0/12"]))
    }
}

const CF_CONNECTING_IP: HeaderName = HeaderName::from_static("cf-connecting-ip");
const FLY_CLIENT_IP: HeaderName = HeaderName::from_static("fly-client-ip");

impl PrefixList {
    /// Creates the set of the addresses that Cloudflare calls origins from: <https://www.cloudflare.com/ips>, in the
    /// state of September 2023.
    ///
    /// It is a copy and does not update itself. Cloudflare says that new ranges are published before they are used.
    /// Behind one that is not in here, all clients would be charged as that one address: refused too early, never
    /// limited too little. Behind one that Cloudflare has given away, its new owner could forge addresses. To follow the
    /// list, fetch it when you deploy and use [`ClientIp::cf_connecting_ip`].
    pub fn cloudflare() -> Self {
        known(&[
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

fn known(prefixes: &[&str]) -> PrefixList {
    prefixes.into_prefixes().expect("the prefixes of this file are well-formed")
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
