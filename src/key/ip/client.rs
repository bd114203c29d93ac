//! The client's address: where it is read, and from whom it is believed.

use std::net::IpAddr;

use http::{HeaderName, request::Parts};

use super::{
    network::{Address, Network},
    prefixes::{IntoPrefixes, PrefixList},
};
use crate::{
    error::ConfigError,
    key::{Key, KeyError, KeyExtractor, KeyOrigin, header::header_name},
};

/// Charges the address of the client, which trusted proxies tell in a header.
///
/// 1. **One source.** Exactly one header is read, and only if the connection's other end is in the trusted prefixes.
///    Otherwise that other end is the client: who comes past the proxies gains nothing by a header. There is no
///    fallback from one header to another.
/// 2. **From the right.** What a proxy appends is on the right; what the client sent is on the left. `X-Forwarded-For`
///    and `Forwarded` are walked from the right, over all lines of the header, and the first address that is not a
///    trusted proxy is the client. If all are trusted, the leftmost is. What is further left is not read (of `Forwarded`,
///    its syntax is). At most 64 addresses are walked over.
/// 3. **Malformed is 400.** What a trusted proxy is responsible for has to be readable; nothing is guessed or stepped
///    over. A port is thrown away. Private addresses are clients like any other, unless they are trusted.
/// 4. **One client, one key.** IPv4 addresses within IPv6 (mapped, or NAT64's `64:ff9b::/96`) are IPv4 addresses. IPv6
///    addresses are grouped by prefix, /64 by default, because one customer usually has a whole one. Some have a /56 or
///    /48: add a wider, looser limit with [`RateLimitLayer::and`](crate::RateLimitLayer::and) and a second `ClientIp`.
///    Link-local addresses (`fe80::/10`) are charged one by one, those of 6to4 (`2002::/16`) by the IPv4 address that
///    they carry.
/// 5. **Nothing is trusted for what it carries.** An IPv4 address that is not global (private, loopback and the like)
///    is never read out of an IPv6 address of NAT64, and none is read out of 6to4 for trust, `exempt` or `deny`: such
///    addresses are forged (RFC 6052, section 3.1), so `64:ff9b::127.0.0.1` is not this host.
///
/// The page [behind a proxy](https://docs.rs/crate/tollgate/latest/source/docs/behind-a-proxy.md) tells which deployment
/// needs what. The connection's other end is found as in [`PeerIp`](super::PeerIp).
///
/// # Examples
///
/// ```
/// use tollgate::ClientIp;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// // A proxy of yours, or several in a row, that append to X-Forwarded-For:
/// let client = ClientIp::x_forwarded_for(["10.0.0.0/8", "fd00::/8"])?;
///
/// // The same from the environment, "10.0.0.0/8, fd00::/8"; internal callers are exempt, and one network is refused:
/// # let trusted_proxies = String::from("10.0.0.0/8, fd00::/8");
/// let client = ClientIp::x_forwarded_for(trusted_proxies)?
///     .with_ipv6_prefix(56)?
///     .exempt(["10.20.0.0/16"])?
///     .deny(["198.51.100.0/24"])?;
///
/// // Presets:
/// let client = ClientIp::behind_load_balancer(["10.0.0.0/8"])?;
/// let client = ClientIp::behind_cloudflare();
/// let client = ClientIp::behind_fly();
/// # Ok(())
/// # }
/// ```
///
/// As a part of a key, and for other purposes. On exempt routes a closure is not asked, so what its `ClientIp`
/// [denies](ClientIp::deny) passes there; in a tuple it is refused:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{ClientIp, Key, KeyExtractor, MatchedPathKey, key::KeyError};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let client = ClientIp::x_real_ip(["127.0.0.1", "::1"])?;
/// let per_client_and_route = (client.clone(), MatchedPathKey);
/// let by_hand = move |parts: &Parts| -> Result<Option<Key>, KeyError> {
///     // `extract` groups IPv6 addresses; `Key::from(address)` would give whoever has a /64 as many budgets.
///     if client.resolve(parts)?.is_loopback() { Ok(Some(Key::from("this host"))) } else { client.extract(parts) }
/// };
/// # fn assert_extractor(_: impl tollgate::KeyExtractor) {}
/// # assert_extractor(per_client_and_route);
/// # assert_extractor(by_hand);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    pub(super) source: Source,
    pub(super) trusted: PrefixList,
    /// So many from the right, in place of the walk over trusted ones.
    pub(super) hops: Option<usize>,
    pub(super) network: Network,
    pub(super) peer_if_missing: bool,
    pub(super) proxy_if_opaque: bool,
    pub(super) trust_unix_peer: bool,
    exempt: PrefixList,
    denied: PrefixList,
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Forwarded,
    ForwardedFor,
    Peer,
    Single(HeaderName),
}

impl ClientIp {
    /// The most addresses that are walked over: far more than there are proxies in a row anywhere.
    pub(super) const MAX_HOPS: usize = 64;

    pub(super) fn of(source: Source, trusted: PrefixList) -> Self {
        Self {
            source,
            trusted,
            hops: None,
            network: Network::default(),
            peer_if_missing: false,
            proxy_if_opaque: false,
            trust_unix_peer: false,
            exempt: PrefixList::default(),
            denied: PrefixList::default(),
        }
    }

    /// Charges the connection's other end and reads no header, like [`PeerIp`](super::PeerIp).
    pub fn peer() -> Self {
        Self::of(Source::Peer, PrefixList::default())
    }

    /// Reads `X-Forwarded-For`, to which every proxy appends the address that it was called from.
    ///
    /// `trusted` are the addresses of all your proxies, as this server and the proxies see them.
    ///
    /// # Errors
    ///
    /// Those of [`PrefixList::new`], and [`ConfigError::NoTrustedProxy`] if the list is empty.
    pub fn x_forwarded_for(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self::of(Source::ForwardedFor, proxies(trusted)?))
    }

    /// Reads `X-Forwarded-For` and takes the address that is `hops` from the right: 1 behind one proxy.
    ///
    /// For proxies whose addresses are not known. The connection's other end is **not** looked at (but has to be known), so this is safe only
    /// if nobody but the proxies can reach the port: say so with [`only_from`](Self::only_from) if you can.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHops`] unless `hops` is 1 to 64.
    pub fn x_forwarded_for_hops(hops: usize) -> Result<Self, ConfigError> {
        Self::hops(Source::ForwardedFor, hops)
    }

    /// Reads `Forwarded` (RFC 7239), to which every proxy appends the address that it was called from.
    ///
    /// `trusted` are the addresses of all your proxies, as this server and the proxies see them. More than 32 KiB of the
    /// header are malformed.
    ///
    /// # Errors
    ///
    /// Those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn forwarded(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self::of(Source::Forwarded, proxies(trusted)?))
    }

    /// Reads `Forwarded` and takes the element that is `hops` from the right, with the caution of
    /// [`x_forwarded_for_hops`](Self::x_forwarded_for_hops).
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHops`] unless `hops` is 1 to 64.
    pub fn forwarded_hops(hops: usize) -> Result<Self, ConfigError> {
        Self::hops(Source::Forwarded, hops)
    }

    /// Reads `X-Real-IP`, one address. nginx sends it only if it is told to (`proxy_set_header X-Real-IP $remote_addr`),
    /// and otherwise passes on what the client sent.
    ///
    /// # Errors
    ///
    /// Those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn x_real_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("x-real-ip", trusted)
    }

    /// Reads `CF-Connecting-IP`, one address, which Cloudflare sets; see [`behind_cloudflare`](Self::behind_cloudflare).
    ///
    /// # Errors
    ///
    /// Those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn cf_connecting_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("cf-connecting-ip", trusted)
    }

    /// Reads `True-Client-IP`, one address, which Akamai and Cloudflare set **if it is turned on** there. Where it is
    /// not, the client's own header comes through, and nothing in the request tells.
    ///
    /// # Errors
    ///
    /// Those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn true_client_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("true-client-ip", trusted)
    }

    /// Reads `Fly-Client-IP`, one address, which Fly.io sets; see [`behind_fly`](Self::behind_fly).
    ///
    /// # Errors
    ///
    /// Those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn fly_client_ip(trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Self::header("fly-client-ip", trusted)
    }

    /// Reads the header `name`, which holds one address and is set by the proxies in `trusted`, whatever clients send.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHeaderName`], and those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn header(name: &str, trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self::of(Source::Single(header_name(name)?), proxies(trusted)?))
    }

    pub(super) fn hops(source: Source, hops: usize) -> Result<Self, ConfigError> {
        if !(1..=Self::MAX_HOPS).contains(&hops) {
            return Err(ConfigError::InvalidHops { hops });
        }
        Ok(Self { hops: Some(hops), ..Self::of(source, PrefixList::dangerously_everybody()) })
    }

    /// Believes the header only if the connection's other end is in `trusted`, in place of what was said before.
    ///
    /// # Errors
    ///
    /// Those of [`x_forwarded_for`](Self::x_forwarded_for).
    pub fn only_from(self, trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self { trusted: proxies(trusted)?, ..self })
    }

    /// Believes the header on connections without an address, those of a unix socket. Defaults to no: such requests
    /// are [`KeyError::NoPeerAddress`].
    ///
    /// A server that is not told its peers' addresses at all looks the same. Set it only where the socket is one that
    /// only the proxy may open. If the unix socket is the only way in, use
    /// [`behind_unix_socket`](Self::behind_unix_socket).
    pub fn trust_unix_peer(self) -> Self {
        Self { trust_unix_peer: true, ..self }
    }

    /// Charges the trusted proxy itself if it sends no header, for its own health checks. Defaults to
    /// [`KeyError::MissingHeader`], because a proxy that does not send the header at all would be one client.
    pub fn peer_if_missing(self) -> Self {
        Self { peer_if_missing: true, ..self }
    }

    /// Charges the proxy that vouched for a client without an address (`unknown`, `_hidden`): all of those together.
    /// Defaults to [`KeyError::OpaqueClient`].
    pub fn proxy_if_opaque(self) -> Self {
        Self { proxy_if_opaque: true, ..self }
    }

    /// Groups IPv6 addresses by the first `length` bits. Defaults to 64, a customer's network at least.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidPrefixLength`] unless `length` is 32 to 128.
    pub fn with_ipv6_prefix(self, length: u8) -> Result<Self, ConfigError> {
        Ok(Self { network: self.network.with_ipv6_prefix(length)?, ..self })
    }

    /// Keeps addresses in `64:ff9b::/96` as the IPv6 addresses that they are. By default they are the IPv4 addresses
    /// that NAT64 has put there, because otherwise all of them would be one client. Trusted prefixes are then compared
    /// as IPv6 prefixes: `64:ff9b::198.51.100.0/120`.
    pub fn keep_nat64(self) -> Self {
        Self { network: self.network.keep_nat64(), ..self }
    }

    /// Reads addresses in `prefix` as the IPv4 addresses that a NAT64 translator of yours has put there (RFC 6052),
    /// like those in `64:ff9b::/96`. See [`PeerIp::with_nat64_prefix`](super::PeerIp::with_nat64_prefix).
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidNat64Prefix`] unless its length is 32, 40, 48, 56, 64 or 96 and bits 64 to 71 are 0.
    pub fn with_nat64_prefix(self, prefix: &str) -> Result<Self, ConfigError> {
        Ok(Self { network: self.network.with_nat64_prefix(prefix)?, ..self })
    }

    /// The key that requests of the client at `address` are charged to, to [reset](crate::Limiter::reset) or to peek at
    /// it. Clients that are exempt or denied are not charged at all.
    pub fn key_of(&self, address: IpAddr) -> Key {
        self.network.key_of(address)
    }

    /// Exempts the clients in `prefixes`: nothing that belongs to this key limits them.
    ///
    /// What is compared is the address that is charged: an address of NAT64 is exempt as the IPv4 address that it
    /// carries, and only as the IPv6 address after [`keep_nat64`](Self::keep_nat64).
    ///
    /// # Errors
    ///
    /// Those of [`PrefixList::new`].
    pub fn exempt(self, prefixes: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self { exempt: prefixes.into_prefixes()?, ..self })
    }

    /// Refuses the clients in `prefixes` with 403, [`KeyError::AddressDenied`]; also those that are exempt, on routes
    /// that are exempt ([`Route::exempt`](crate::Route::exempt)) too.
    ///
    /// An address of NAT64 is refused in both of its forms: as it was received, and as the IPv4 address that it
    /// carries.
    ///
    /// If there are such clients, a request whose address cannot be read is refused on exempt routes as on all others,
    /// with 400: otherwise a malformed header would be a way past the list. One without the header passes there, which
    /// is what health checks are.
    ///
    /// A closure that calls a `ClientIp` is not asked on exempt routes, so the list does not hold there: pass the
    /// `ClientIp` itself to the layer, alone, in a tuple, or by
    /// [`RateLimitLayer::and`](crate::RateLimitLayer::and).
    ///
    /// # Errors
    ///
    /// Those of [`PrefixList::new`].
    pub fn deny(self, prefixes: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self { denied: prefixes.into_prefixes()?, ..self })
    }

    /// In every form of the address, as opposed to trust and exemptions: these are wrong if in doubt.
    fn refuse_denied(&self, address: Address) -> Result<(), KeyError> {
        if self.denied.contains(address.received) || self.denied.holds(address.canonical) {
            return Err(KeyError::AddressDenied);
        }
        Ok(())
    }
}

/// The proxies that are believed, of which there has to be one.
fn proxies(trusted: impl IntoPrefixes) -> Result<PrefixList, ConfigError> {
    let trusted = trusted.into_prefixes()?;
    if trusted.is_empty() { Err(ConfigError::NoTrustedProxy) } else { Ok(trusted) }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let address = self.locate(parts)?;
        self.refuse_denied(address)?;
        Ok((!self.exempt.holds(address.canonical)).then(|| self.network.key(address.canonical)))
    }

    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        if self.denied.is_empty() { Ok(()) } else { self.refuse_denied(self.locate(parts)?) }
    }

    fn origin(&self) -> KeyOrigin {
        match self.source {
            Source::Peer => KeyOrigin::Peer,
            _ => KeyOrigin::Forwarded,
        }
    }
}
