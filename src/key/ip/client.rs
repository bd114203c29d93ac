//! The extractor of the client's address behind proxies.

use std::{fmt::Display, net::IpAddr};

use http::request::Parts;

use super::grouping::Address;
use super::prefixes::{PrefixList, list};
use super::resolver::{AddressSource, Resolver};
use crate::error::{ConfigError, FirstMistake};
use crate::key::error::{KeyError, KeyFault};
use crate::key::extractor::{KeyExtractor, KeyOrigin};
use crate::key::subject::Key;

/// Charges the address of the client, read from a header of trusted proxies.
///
/// 1. **One source.** Exactly one header is read, and only if the connection's peer is in the trusted prefixes.
///    Otherwise the peer is the client, so a client that bypasses the proxies gains nothing by sending the header. If
///    the header is missing, no other header is read.
/// 2. **From the right.** A proxy appends on the right; the client's own text is on the left. `X-Forwarded-For` and
///    `Forwarded` are walked from the right, over all lines of the header. The first address that is not a trusted
///    proxy is the client. If all addresses are trusted, the leftmost address is the client. Text to the left of the
///    client is not read, except that the whole `Forwarded` header must have valid syntax. A walk covers at most 64
///    addresses.
/// 3. **A malformed header is refused with 400.** The text that trusted proxies have written must be valid; nothing is
///    guessed or skipped. Ports are dropped. A private address is a client like any other, unless it is trusted.
/// 4. **One client, one key.** An IPv6 address that embeds an IPv4 address (mapped, or NAT64's `64:ff9b::/96`) is
///    charged as that IPv4 address, which has its own key, unless
///    [`with_ipv4_prefix`](Self::with_ipv4_prefix) groups IPv4 addresses too. IPv6 addresses are grouped by prefix, /64
///    by default, because one customer usually has a whole /64. Some customers have a /56 or /48: add a wider, higher
///    limit with [`RateLimitLayer::and`](crate::RateLimitLayer::and) and a second `ClientIp`. Each link-local address
///    (`fe80::/10`) has its own key. Addresses of 6to4 (`2002::/16`) share the key of the IPv4 address that they embed.
/// 5. **An embedded address gives no trust.** An IPv4 address that is not global (private, loopback and the like) is
///    never decoded from a NAT64 address, because such an address is forged (RFC 6052, section 3.1):
///    `64:ff9b::127.0.0.1` is not this host. For trust, `exempt` and `deny`, no address is decoded from 6to4.
///
/// The first mistake in the settings, such as a prefix that cannot be used, is one of each
/// [layer](crate::RateLimitLayer::validated) with the extractor, which refuses each request with 500.
///
/// The page [behind a proxy](crate::guide::behind_a_proxy) lists the constructor for each deployment. The peer's
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
/// // The list of proxies comes from the environment. Internal callers are
/// // exempt, and one network is refused:
/// # let trusted_proxies = String::from("10.0.0.0/8, fd00::/8");
/// let client = ClientIp::x_forwarded_for(trusted_proxies)?
///     .with_ipv6_prefix(56)
///     .exempt(["10.20.0.0/16"])
///     .deny(["198.51.100.0/24"]);
///
/// // Presets:
/// let client = ClientIp::behind_load_balancer(["10.0.0.0/8"])?;
/// let client = ClientIp::behind_cloudflare();
/// let client = ClientIp::behind_fly();
/// # Ok(())
/// # }
/// ```
///
/// In a compound key, and inside a closure. Closures are not called on exempt routes, so addresses that a `ClientIp`
/// inside a closure [denies](ClientIp::deny) pass on these routes. A `ClientIp` in a tuple refuses them there too:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{ClientIp, Key, KeyExtractor, MatchedPathKey, key::KeyError};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let client = ClientIp::header("x-real-ip", ["127.0.0.1", "::1"])?;
/// let per_client_and_route = (client.clone(), MatchedPathKey);
/// let in_a_closure = move |parts: &Parts| -> Result<Option<Key>, KeyError> {
///     // `extract` groups IPv6 addresses; `Key::from(address)` would give each
///     // address of a /64 its own budget.
///     if client.resolve(parts)?.is_loopback() {
///         Ok(Some(Key::from("this host")))
///     } else {
///         client.extract(parts)
///     }
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
    pub(super) resolver: Resolver,
    exempt: PrefixList,
    denied: PrefixList,
    mistake: FirstMistake,
}

impl ClientIp {
    pub(super) fn new(source: AddressSource, trusted: PrefixList) -> Self {
        let (exempt, denied, mistake) = Default::default();
        Self { resolver: Resolver::new(source, trusted), exempt, denied, mistake }
    }

    /// Creates the extractor of the address at place `hops` from the right, for any peer.
    pub(super) fn with_hops(source: AddressSource, hops: usize) -> Result<Self, ConfigError> {
        if !(1..=Resolver::MAX_HOPS).contains(&hops) {
            return Err(ConfigError::new(format!("{hops} hops are out of range; use 1 to 64")));
        }
        let client = Self::new(source, PrefixList::dangerously_everybody());
        Ok(client.with_resolver(|resolver| resolver.hops = Some(hops)))
    }

    pub(super) fn with_resolver(mut self, change: impl FnOnce(&mut Resolver)) -> Self {
        change(&mut self.resolver);
        self
    }

    /// Sets a value, or keeps its mistake.
    pub(super) fn set<T>(mut self, value: Result<T, ConfigError>, set: impl FnOnce(&mut Self, T)) -> Self {
        if let Some(value) = self.mistake.keep(value) {
            set(&mut self, value);
        }
        self
    }

    /// Returns the extractor, or the first mistake in its settings.
    pub(super) fn validated(self) -> Result<Self, ConfigError> {
        self.mistake.found()?;
        Ok(self)
    }

    /// Sets the peers whose header is read, in place of the trusted prefixes of the constructor.
    ///
    /// The errors of [`x_forwarded_for`](Self::x_forwarded_for) are mistakes, which the
    /// [layer](crate::RateLimitLayer::validated) returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ClientIp;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = ClientIp::x_forwarded_for(2)?.only_from(["10.0.0.0/8"]);
    /// # let _ = client;
    /// # Ok(())
    /// # }
    /// ```
    pub fn only_from(self, trusted: impl TryInto<PrefixList, Error: Display>) -> Self {
        self.set(proxies(trusted), |client, trusted| client.resolver.trusted = trusted)
    }

    /// Also reads the header on connections without a peer address, such as connections through a unix socket. By
    /// default such requests are refused with the cause `no_peer` ([`KeyError`]).
    ///
    /// The connections of a server that does not provide peer addresses look the same. Call this method only if the
    /// proxy alone may open the socket. If all requests come through the unix socket, use
    /// [`behind_unix_socket`](Self::behind_unix_socket).
    ///
    /// # Examples
    ///
    /// Requests come from a local proxy through a unix socket, and from a load balancer over TCP:
    ///
    /// ```
    /// let client =
    ///     tollgate::ClientIp::x_forwarded_for(["10.0.0.0/24"])?.trust_unix_peer();
    /// # let _ = client;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn trust_unix_peer(self) -> Self {
        self.with_resolver(|resolver| resolver.trust_unix_peer = true)
    }

    /// Charges the trusted proxy itself if a request of the proxy has no header, as health checks have none. By default
    /// such requests are refused with the cause `missing_header`, because all clients of a proxy that never sends the
    /// header would share one budget.
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
    /// all such clients. By default such requests are refused with the cause `opaque_client` ([`KeyError`]).
    ///
    /// # Examples
    ///
    /// ```
    /// let client = tollgate::ClientIp::forwarded(["192.0.2.1"])?.proxy_if_opaque();
    /// # let _ = client;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn proxy_if_opaque(self) -> Self {
        self.with_resolver(|resolver| resolver.proxy_if_opaque = true)
    }

    /// Returns the client's address, unmapped and ungrouped. Does not compare the address with the lists of
    /// [`exempt`](Self::exempt) and [`deny`](Self::deny).
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the address is not known, or if the extractor has a mistake: see [`KeyError::cause`].
    pub fn resolve(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        Ok(self.address(parts)?.canonical)
    }

    fn address(&self, parts: &Parts) -> Result<Address, KeyError> {
        self.mistake.found()?;
        self.resolver.resolve(parts)
    }

    /// Exempts the clients in `prefixes` from the policies of this key.
    ///
    /// `prefixes` are compared with the charged form of an address: for a NAT64 address, the IPv4 address that it
    /// embeds, or the IPv6 address after [`keep_nat64`](Self::keep_nat64).
    ///
    /// The errors of [`PrefixList::new`] are mistakes, which the [layer](crate::RateLimitLayer::validated) returns.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client = tollgate::ClientIp::x_forwarded_for(["10.0.0.0/8"])?
    ///     .exempt(["10.20.0.0/16"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn exempt(self, prefixes: impl TryInto<PrefixList, Error: Display>) -> Self {
        self.set(list(prefixes), |client, exempt| client.exempt = exempt)
    }

    /// Refuses the clients in `prefixes` with 403 ([`KeyError`] with the cause `address_denied`), even if they are
    /// [exempt](Self::exempt) or request an exempt route ([`Route::exempt`](crate::Route::exempt)).
    ///
    /// `prefixes` are compared with both forms of a NAT64 address: as received, and as the IPv4 address that it
    /// embeds.
    ///
    /// If the list is not empty, a request whose address cannot be read is refused with 400 on exempt routes too,
    /// because otherwise a client could avoid the list with a malformed header. A request without the header passes on
    /// exempt routes, because health checks have no header.
    ///
    /// For an allowed address inside a denied network, pass a [set](PrefixList::except):
    /// `PrefixList::new("198.51.100.0/24")?.except("198.51.100.7")`. To deny keys that are no addresses, see
    /// [`KeyError::denied`].
    ///
    /// A `ClientIp` inside a closure does not refuse requests on exempt routes, because closures are not called there.
    /// Pass the `ClientIp` itself to the layer: alone, in a tuple, or with
    /// [`RateLimitLayer::and`](crate::RateLimitLayer::and).
    ///
    /// The errors of [`PrefixList::new`] are mistakes, which the [layer](crate::RateLimitLayer::validated) returns.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let client =
    ///     tollgate::ClientIp::peer().deny(["198.51.100.0/24", "2001:db8:bad::/48"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn deny(self, prefixes: impl TryInto<PrefixList, Error: Display>) -> Self {
        self.set(list(prefixes), |client, denied| client.denied = denied)
    }

    /// Compares the denied prefixes with both forms of the address. Trust and exemptions compare one form only, because
    /// a wrong match would let a request pass.
    fn refuse_denied(&self, address: Address) -> Result<(), KeyError> {
        if self.denied.contains(address.received) || self.denied.holds(address.canonical) {
            return Err(KeyError(KeyFault::AddressDenied));
        }
        Ok(())
    }
}

/// Converts the trusted proxies into a list, which must not be empty.
pub(super) fn proxies(trusted: impl TryInto<PrefixList, Error: Display>) -> Result<PrefixList, ConfigError> {
    let trusted = list(trusted)?;
    if trusted.is_empty() {
        return Err(ConfigError::new(
            "the list of trusted proxies is empty, so the header would be ignored and each proxy would be charged \
             for all its clients; list the addresses of your proxies, or use `ClientIp::peer()` without a proxy, \
             `ClientIp::behind_unix_socket()` for a proxy on a unix socket",
        ));
    }
    Ok(trusted)
}

impl KeyExtractor for ClientIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let address = self.address(parts)?;
        self.refuse_denied(address)?;
        Ok((!self.exempt.holds(address.canonical)).then(|| self.resolver.grouping.key(address.canonical)))
    }

    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        self.mistake.found()?;
        if self.denied.is_empty() { Ok(()) } else { self.refuse_denied(self.resolver.resolve(parts)?) }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.mistake.found()
    }

    fn origin(&self) -> KeyOrigin {
        match self.resolver.source {
            AddressSource::Peer => KeyOrigin::Peer,
            _ => KeyOrigin::Forwarded,
        }
    }
}
