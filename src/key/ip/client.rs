//! The extractor of the client's address behind proxies.

use std::net::IpAddr;

use http::request::Parts;

use super::{
    grouping::{Address, Grouping},
    prefixes::{IntoPrefixes, PrefixList},
    resolver::{AddressSource, Resolver},
};
use crate::{
    error::ConfigError,
    key::{
        error::KeyError,
        extractor::{KeyExtractor, KeyOrigin},
        subject::Key,
    },
};

/// Charges the address of the client, read from a header of trusted proxies.
///
/// 1. **One source.** Exactly one header is read, and only if the connection's peer is in the trusted prefixes.
///    Otherwise the peer is the client: a client that bypasses the proxies gains nothing by sending the header. No
///    other header is read in its place.
/// 2. **From the right.** A proxy appends on the right; the client's own text is on the left. `X-Forwarded-For` and
///    `Forwarded` are walked from the right, over all lines of the header. The first address that is not a trusted
///    proxy is the client; if all are trusted, the leftmost is. Text further to the left is not read (of `Forwarded`,
///    only its syntax is checked). A walk covers at most 64 addresses.
/// 3. **Malformed is 400.** The part that trusted proxies have written must be readable; nothing is guessed or skipped.
///    Ports are dropped. Private addresses are clients like any other, unless they are trusted.
/// 4. **One client, one key.** An IPv4 address inside an IPv6 address (mapped, or NAT64's `64:ff9b::/96`) is that IPv4
///    address. IPv6 addresses are grouped by prefix, /64 by default, because one customer usually has a whole /64. Some
///    customers have a /56 or /48: add a wider, higher limit with
///    [`RateLimitLayer::and`](crate::RateLimitLayer::and) and a second `ClientIp`. Link-local addresses (`fe80::/10`)
///    have a key each. Addresses of 6to4 (`2002::/16`) share the key of the IPv4 address that they carry.
/// 5. **A carried address gives no trust.** An IPv4 address that is not global (private, loopback and the like) is
///    never read out of a NAT64 address, and no address is read out of 6to4 for trust, `exempt` or `deny`: such
///    addresses are forged (RFC 6052, section 3.1). `64:ff9b::127.0.0.1` is not this host.
///
/// The page [behind a proxy](crate::guide::behind_a_proxy) lists which deployment needs which constructor. The peer's
/// address is found as in [`PeerIp`](super::PeerIp).
///
/// # Examples
///
/// ```
/// use tollgate::ClientIp;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// // One or more proxies in a row that append to X-Forwarded-For:
/// let client = ClientIp::x_forwarded_for(["10.0.0.0/8", "fd00::/8"])?;
///
/// // Proxies from the environment; internal callers are exempt, one network is refused:
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
/// As a part of a key, and inside a closure. A closure is not called on exempt routes, so the addresses that its
/// `ClientIp` [denies](ClientIp::deny) pass there; in a tuple they are refused:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{ClientIp, Key, KeyExtractor, MatchedPathKey, key::KeyError};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let client = ClientIp::x_real_ip(["127.0.0.1", "::1"])?;
/// let per_client_and_route = (client.clone(), MatchedPathKey);
/// let in_a_closure = move |parts: &Parts| -> Result<Option<Key>, KeyError> {
///     // `extract` groups IPv6 addresses; `Key::from(address)` would give each address of a /64 its own budget.
///     if client.resolve(parts)?.is_loopback() { Ok(Some(Key::from("this host"))) } else { client.extract(parts) }
/// };
/// # fn assert_extractor(_: impl tollgate::KeyExtractor) {}
/// # assert_extractor(per_client_and_route);
/// # assert_extractor(in_a_closure);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    resolver: Resolver,
    exempt: PrefixList,
    denied: PrefixList,
}

impl ClientIp {
    pub(super) fn new(source: AddressSource, trusted: PrefixList) -> Self {
        Self { resolver: Resolver::new(source, trusted), exempt: PrefixList::default(), denied: PrefixList::default() }
    }

    /// Takes the address at place `hops` from the right, whatever the peer is.
    pub(super) fn with_hops(source: AddressSource, hops: usize) -> Result<Self, ConfigError> {
        if !(1..=Resolver::MAX_HOPS).contains(&hops) {
            return Err(ConfigError::InvalidHops { hops });
        }
        let client = Self::new(source, PrefixList::dangerously_everybody());
        Ok(client.with_resolver(|resolver| resolver.hops = Some(hops)))
    }

    fn with_resolver(mut self, change: impl FnOnce(&mut Resolver)) -> Self {
        change(&mut self.resolver);
        self
    }

    fn with_grouping(
        mut self,
        change: impl FnOnce(Grouping) -> Result<Grouping, ConfigError>,
    ) -> Result<Self, ConfigError> {
        self.resolver.grouping = change(self.resolver.grouping)?;
        Ok(self)
    }

    /// Sets the peers whose header is read, in place of the trusted prefixes of the constructor.
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
    /// let client = ClientIp::x_forwarded_for_hops(2)?.only_from(["10.0.0.0/8"])?;
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn only_from(self, trusted: impl IntoPrefixes) -> Result<Self, ConfigError> {
        let trusted = proxies(trusted)?;
        Ok(self.with_resolver(|resolver| resolver.trusted = trusted))
    }

    /// Reads the header on connections without an address, which are those of a unix socket. By default such requests
    /// are refused with [`KeyError::NoPeerAddress`].
    ///
    /// A server that does not provide peer addresses looks the same. Set this only where the proxy alone may open the
    /// socket. If the unix socket is the only way in, use [`behind_unix_socket`](Self::behind_unix_socket).
    pub fn trust_unix_peer(self) -> Self {
        self.with_resolver(|resolver| resolver.trust_unix_peer = true)
    }

    /// Charges the trusted proxy itself if it sends no header, as its own health checks do. By default such requests
    /// are refused with [`KeyError::MissingHeader`], because a proxy that never sends the header would be one client.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::behind_load_balancer(["10.0.0.0/8"])?.peer_if_missing();
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn peer_if_missing(self) -> Self {
        self.with_resolver(|resolver| resolver.peer_if_missing = true)
    }

    /// Charges the proxy that has sent a name in place of the client's address (`unknown`, `_hidden`), one budget for
    /// all such clients. By default such requests are refused with [`KeyError::OpaqueClient`].
    pub fn proxy_if_opaque(self) -> Self {
        self.with_resolver(|resolver| resolver.proxy_if_opaque = true)
    }

    /// Groups IPv6 addresses by the first `length` bits. Defaults to 64, the smallest network that customers get.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidPrefixLength`] unless `length` is 32 to 128.
    pub fn with_ipv6_prefix(self, length: u8) -> Result<Self, ConfigError> {
        self.with_grouping(|grouping| grouping.with_ipv6_prefix(length))
    }

    /// Keeps addresses in `64:ff9b::/96` as IPv6 addresses. By default they are the IPv4 addresses that NAT64 has put
    /// there, because otherwise all of them would be one client. Trusted prefixes are then compared as IPv6 prefixes:
    /// `64:ff9b::198.51.100.0/120`.
    pub fn keep_nat64(self) -> Self {
        self.with_resolver(|resolver| resolver.grouping = resolver.grouping.keep_nat64())
    }

    /// Reads addresses in `prefix` as the IPv4 addresses that your own NAT64 translator has put there (RFC 6052), in
    /// addition to `64:ff9b::/96`. See [`PeerIp::with_nat64_prefix`](super::PeerIp::with_nat64_prefix).
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidNat64Prefix`] unless its length is 32, 40, 48, 56, 64 or 96 and bits 64 to 71 are 0.
    pub fn with_nat64_prefix(self, prefix: &str) -> Result<Self, ConfigError> {
        self.with_grouping(|grouping| grouping.with_nat64_prefix(prefix))
    }

    /// The key that requests of the client at `address` are charged to, for [`Limiter::reset`](crate::Limiter::reset)
    /// and [`Limiter::peek`](crate::Limiter::peek). Exempt and denied clients are not charged.
    pub fn key_of(&self, address: IpAddr) -> Key {
        self.resolver.grouping.key_of(address)
    }

    /// Finds the client's address: unmapped and ungrouped, whether it is exempt, denied or neither.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the address is not known: `MalformedHeader`, `MissingHeader`, `RepeatedHeader`, `OpaqueClient`,
    /// `TooManyHops`, `ChainTooShort` or `NoPeerAddress`.
    pub fn resolve(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        Ok(self.resolver.resolve(parts)?.canonical)
    }

    /// Exempts the clients in `prefixes`: the policies of this key do not limit them.
    ///
    /// The charged form of an address is compared: a NAT64 address is exempt as the IPv4 address that it carries, and
    /// after [`keep_nat64`](Self::keep_nat64) as the IPv6 address alone.
    ///
    /// # Errors
    ///
    /// The errors of [`PrefixList::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = tollgate::ClientIp::x_forwarded_for(["10.0.0.0/8"])?.exempt(["10.20.0.0/16"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exempt(self, prefixes: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self { exempt: prefixes.into_prefixes()?, ..self })
    }

    /// Refuses the clients in `prefixes` with 403, [`KeyError::AddressDenied`]. The list comes before
    /// [`exempt`](Self::exempt) and also holds on exempt routes ([`Route::exempt`](crate::Route::exempt)).
    ///
    /// A NAT64 address is refused in both of its forms: as received, and as the IPv4 address that it carries.
    ///
    /// If the list is not empty, a request whose address cannot be read is refused with 400 on exempt routes too:
    /// otherwise a malformed header would be a way past the list. A request without the header passes there, because
    /// health checks have none.
    ///
    /// The list does not hold for a `ClientIp` inside a closure on exempt routes, where closures are not called: pass
    /// the `ClientIp` itself to the layer, alone, in a tuple, or by
    /// [`RateLimitLayer::and`](crate::RateLimitLayer::and).
    ///
    /// # Errors
    ///
    /// The errors of [`PrefixList::new`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = tollgate::ClientIp::peer().deny(["198.51.100.0/24", "2001:db8:bad::/48"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn deny(self, prefixes: impl IntoPrefixes) -> Result<Self, ConfigError> {
        Ok(Self { denied: prefixes.into_prefixes()?, ..self })
    }

    /// Compares both forms of the address. Trust and exemptions compare one form, because a wrong match there lets a
    /// request pass.
    fn refuse_denied(&self, address: Address) -> Result<(), KeyError> {
        if self.denied.contains(address.received) || self.denied.holds(address.canonical) {
            return Err(KeyError::AddressDenied);
        }
        Ok(())
    }
}

/// The trusted proxies, at least one.
pub(super) fn proxies(trusted: impl IntoPrefixes) -> Result<PrefixList, ConfigError> {
    let trusted = trusted.into_prefixes()?;
    if trusted.is_empty() { Err(ConfigError::NoTrustedProxy) } else { Ok(trusted) }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let address = self.resolver.resolve(parts)?;
        self.refuse_denied(address)?;
        Ok((!self.exempt.holds(address.canonical)).then(|| self.resolver.grouping.key(address.canonical)))
    }

    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        if self.denied.is_empty() { Ok(()) } else { self.refuse_denied(self.resolver.resolve(parts)?) }
    }

    fn origin(&self) -> KeyOrigin {
        match self.resolver.source {
            AddressSource::Peer => KeyOrigin::Peer,
            _ => KeyOrigin::Forwarded,
        }
    }
}
