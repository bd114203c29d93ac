//! How [`ClientIp`] groups addresses into keys.

use std::net::IpAddr;

use super::{client::ClientIp, grouping::Grouping};
use crate::{error::ConfigError, key::subject::Key};

impl ClientIp {
    fn with_grouping(self, change: impl FnOnce(Grouping) -> Result<Grouping, ConfigError>) -> Self {
        let grouping = change(self.resolver.grouping);
        self.set(grouping, |client, grouping| client.resolver.grouping = grouping)
    }

    /// Groups IPv6 addresses by the first `length` bits. Defaults to 64, the smallest network that customers get. With
    /// a longer prefix, one customer has many budgets.
    ///
    /// Another length than 32 to 128 is a mistake, which the [layer](crate::RateLimitLayer::validated) returns.
    pub fn with_ipv6_prefix(self, length: u8) -> Self {
        self.with_grouping(|grouping| grouping.with_ipv6_prefix(length))
    }

    /// Groups IPv4 addresses by the first `length` bits, also those that an IPv6 address embeds. Defaults to 32: each
    /// address has its own key, because one address of IPv4 is often a whole office already.
    ///
    /// Use it for clients that change their address within a network: `with_ipv4_prefix(24)`. All customers of the
    /// network then share one budget. [`exempt`](Self::exempt), [`deny`](Self::deny) and the trusted prefixes compare
    /// whole addresses.
    ///
    /// Another length than 8 to 32 is a mistake, which the [layer](crate::RateLimitLayer::validated) returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ClientIp, Key};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = ClientIp::behind_cloudflare().with_ipv4_prefix(24);
    /// assert_eq!(client.key_of("203.0.113.7".parse()?), Key::from("203.0.113.0/24"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_ipv4_prefix(self, length: u8) -> Self {
        self.with_grouping(|grouping| grouping.with_ipv4_prefix(length))
    }

    /// Keeps addresses in `64:ff9b::/96` as IPv6 addresses. By default such an address becomes the IPv4 address that
    /// NAT64 has put there, because otherwise all clients of NAT64 would share one /64.
    ///
    /// After this call, write trusted addresses of NAT64 as IPv6 prefixes: `64:ff9b::198.51.100.0/120`.
    pub fn keep_nat64(self) -> Self {
        self.with_resolver(|resolver| resolver.grouping = resolver.grouping.keep_nat64())
    }

    /// Reads addresses in `prefix` as the IPv4 addresses that your own NAT64 translator has put there (RFC 6052), in
    /// addition to `64:ff9b::/96`.
    ///
    /// Write the prefix with its length: `"2001:db8:122::/96"`. A second call replaces the prefix of the first call. An
    /// address that embeds an IPv4 address that is not global (private, loopback and the like) is not decoded and has
    /// its own key. It is a mistake unless the length is 32, 40, 48, 56, 64 or 96 and bits 64 to 71 are 0.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ClientIp, Key};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let peer = ClientIp::peer().with_nat64_prefix("2001:db8:122::/96");
    /// assert_eq!(
    ///     peer.key_of("2001:db8:122::203.0.113.7".parse()?),
    ///     Key::from("203.0.113.7")
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_nat64_prefix(self, prefix: &str) -> Self {
        self.with_grouping(|grouping| grouping.with_nat64_prefix(prefix))
    }

    /// Returns the key that requests of the client at `address` are charged to, for
    /// [`Limiter::reset`](crate::Limiter::reset) and [`Limiter::peek`](crate::Limiter::peek). Exempt and denied clients
    /// are not charged.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ClientIp, Limiter, Policy};
    ///
    /// # async fn lift(limiter: Limiter, policy: Policy) -> Result<(), Box<dyn std::error::Error>> {
    /// let client = ClientIp::behind_cloudflare();
    /// limiter.reset(client.key_of("203.0.113.7".parse()?), &policy).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_of(&self, address: IpAddr) -> Key {
        self.resolver.grouping.key_of(address)
    }
}
