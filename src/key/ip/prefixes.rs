//! Sets of addresses, written as prefixes.

use std::{fmt::Display, net::IpAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::grouping::{Grouping, WELL_KNOWN, last_bits};
use crate::error::{ConfigError, FirstMistake};

/// A set of addresses, written as prefixes: `10.0.0.0/8`, `fd00::/8`, or single addresses.
///
/// Bits after a prefix's length are ignored. An IPv4 prefix in IPv6 notation (`::ffff:10.0.0.0/104`) contains the same
/// addresses as the IPv4 prefix. A NAT64 prefix (`64:ff9b::10.0.0.0/104`) contains the IPv4 addresses and the IPv6
/// addresses that embed them. The default is the empty set. A look-up is a binary search, so lists may be long.
///
/// # Examples
///
/// A limit by API key that exempts the addresses of an office:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{ApiKey, ClientIp, KeyExtractor, key::PrefixList};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let client = ClientIp::x_forwarded_for(["10.0.0.0/8"])?;
/// let office = PrefixList::new(["198.51.100.0/24", "2001:db8:17::/48"])?;
/// let key = ApiKey::bearer();
/// let all_but_the_office = move |parts: &Parts| {
///     if office.contains(client.resolve(parts)?) {
///         Ok(None)
///     } else {
///         key.extract(parts)
///     }
/// };
/// # fn assert_extractor(_: impl KeyExtractor) {}
/// # assert_extractor(all_but_the_office);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct PrefixList {
    /// Sorted and disjoint.
    pub(super) v4: Vec<Ipv4Net>,
    /// Sorted and disjoint.
    pub(super) v6: Vec<Ipv6Net>,
    pub(super) mistake: FirstMistake,
}

impl PrefixList {
    /// Creates the set from an array, a `Vec` or a slice of texts or addresses, or from one text with commas, as an
    /// environment variable may have. Each function that takes prefixes takes the same, or a set.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a text is neither an address nor a prefix, or if the set contains all IPv4 or all IPv6
    /// addresses, as `0.0.0.0/0` does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::key::PrefixList;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let office = PrefixList::new("198.51.100.0/24, 2001:db8:17::/48")?;
    /// assert!(office.contains("198.51.100.9".parse()?));
    /// assert!(!office.contains("203.0.113.7".parse()?));
    ///
    /// let from_addresses = PrefixList::new(vec!["192.0.2.1".parse::<IpAddr>()?])?;
    /// # let _ = from_addresses;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(prefixes: impl TryInto<Self, Error: Display>) -> Result<Self, ConfigError> {
        list(prefixes)
    }

    /// Adds `prefixes` to the set.
    ///
    /// The errors of [`new`](Self::new) are mistakes of the set, and of each [`ClientIp`](crate::ClientIp) that gets
    /// the set. The set itself lacks `prefixes` then.
    pub fn and(mut self, prefixes: impl TryInto<Self, Error: Display>) -> Self {
        let both = list(prefixes)
            .and_then(|added| Self::of([&*self.v4, &*added.v4].concat(), [&*self.v6, &*added.v6].concat()));
        match self.mistake.keep(both) {
            Some(both) => Self { mistake: self.mistake, ..both },
            None => self,
        }
    }

    /// Returns the set, or the first mistake of [`and`](Self::and) and [`except`](Self::except).
    pub(super) fn validated(self) -> Result<Self, ConfigError> {
        self.mistake.found()?;
        Ok(self)
    }

    /// Creates the set of all addresses.
    ///
    /// If a [`ClientIp`](crate::ClientIp) trusts this set, **any client** that reaches the port can choose the charged
    /// address. Use the set only if the network lets nothing but the proxies connect.
    ///
    /// # Examples
    ///
    /// The proxies have no fixed addresses, and the network lets only them connect:
    ///
    /// ```
    /// use tollgate::{ClientIp, key::PrefixList};
    ///
    /// let client =
    ///     ClientIp::header("x-client-address", PrefixList::dangerously_everybody())?;
    /// # let _ = client;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn dangerously_everybody() -> Self {
        Self { v4: vec![Ipv4Net::default()], v6: vec![Ipv6Net::default()], ..Self::default() }
    }

    /// Whether the set contains `address`, unmapped, or the IPv4 address that `address` embeds in `64:ff9b::/96`.
    ///
    /// An embedded IPv4 address that is not global (private, loopback and the like) is ignored, because such an address
    /// is forged (RFC 6052, section 3.1).
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = Grouping::default().read(address);
        self.holds(address.received) || self.holds(address.canonical)
    }

    /// Whether the set contains `address` in exactly this form.
    pub(super) fn holds(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let next = self.v4.partition_point(|net| net.network() <= address);
                self.v4[..next].last().is_some_and(|net| net.contains(&address))
            }
            IpAddr::V6(address) => {
                let next = self.v6.partition_point(|net| net.network() <= address);
                self.v6[..next].last().is_some_and(|net| net.contains(&address))
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Parses the texts, and aggregates their prefixes.
    fn parse_all(texts: impl IntoIterator<Item = impl ToString>) -> Result<Self, ConfigError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for text in texts {
            let text = text.to_string();
            let net = parse(text.trim()).ok_or_else(|| {
                ConfigError::new(format!(
                    "{text:?} is not an address or a prefix; write 10.0.0.0/8, fd00::/8 or an address"
                ))
            })?;
            let embedded = embedded_ipv4(net);
            if net.prefix_len() == 0 || embedded.is_some_and(|net| net.prefix_len() == 0) {
                return Err(of_everybody(&text));
            }
            v4.extend(embedded);
            match net {
                IpNet::V4(net) => v4.push(net),
                IpNet::V6(net) => v6.push(net),
            }
        }
        Self::of(v4, v6)
    }

    /// Sorts and aggregates the prefixes.
    fn of(v4: Vec<Ipv4Net>, v6: Vec<Ipv6Net>) -> Result<Self, ConfigError> {
        let mut list = Self { v4: Ipv4Net::aggregate(&v4), v6: Ipv6Net::aggregate(&v6), ..Self::default() };
        list.v4.sort_unstable();
        list.v6.sort_unstable();
        // Several prefixes, such as two halves, may aggregate to all addresses.
        let lowest = [list.v4.first().map(|&net| net.into()), list.v6.first().map(|&net| net.into())];
        match lowest.into_iter().flatten().find(|net: &IpNet| net.prefix_len() == 0) {
            Some(net) => Err(of_everybody(&net.to_string())),
            None => Ok(list),
        }
    }
}

/// Parses an address or a prefix, and clears the bits after the prefix's length.
fn parse(text: &str) -> Option<IpNet> {
    let net = match text.split_once('/') {
        Some((address, length)) => IpNet::new(address.parse().ok()?, length.parse().ok()?).ok()?,
        None => IpNet::from(text.parse::<IpAddr>().ok()?),
    };
    Some(net.trunc())
}

/// The IPv4 prefix inside an IPv6 prefix of mapped or NAT64 addresses.
fn embedded_ipv4(net: IpNet) -> Option<Ipv4Net> {
    let IpNet::V6(net) = net else { return None };
    let network = net.network();
    let length = net.prefix_len().checked_sub(96)?;
    let address = network.to_ipv4_mapped().or_else(|| WELL_KNOWN.holds(network).then(|| last_bits(network)))?;
    Ipv4Net::new(address, length).ok()
}

/// Converts what a caller lists. A list of its own may have a mistake.
pub(super) fn list(prefixes: impl TryInto<PrefixList, Error: Display>) -> Result<PrefixList, ConfigError> {
    let list = prefixes.try_into().map_err(|mistake| ConfigError::new(mistake.to_string()))?;
    list.validated()
}

/// Prefixes with commas between them, as an environment variable may have. An empty text converts into an empty list.
impl TryFrom<&str> for PrefixList {
    type Error = ConfigError;

    fn try_from(text: &str) -> Result<Self, ConfigError> {
        Self::parse_all(text.split(',').filter(|text| !text.trim().is_empty()))
    }
}

impl TryFrom<String> for PrefixList {
    type Error = ConfigError;

    fn try_from(text: String) -> Result<Self, ConfigError> {
        text.as_str().try_into()
    }
}

impl<T: ToString, const N: usize> TryFrom<[T; N]> for PrefixList {
    type Error = ConfigError;

    fn try_from(prefixes: [T; N]) -> Result<Self, ConfigError> {
        Self::parse_all(prefixes)
    }
}

impl<T: ToString> TryFrom<Vec<T>> for PrefixList {
    type Error = ConfigError;

    fn try_from(prefixes: Vec<T>) -> Result<Self, ConfigError> {
        Self::parse_all(prefixes)
    }
}

impl<T: ToString> TryFrom<&[T]> for PrefixList {
    type Error = ConfigError;

    fn try_from(prefixes: &[T]) -> Result<Self, ConfigError> {
        Self::parse_all(prefixes.iter().map(T::to_string))
    }
}

/// The error of a prefix of all addresses. A list does not know what it is for.
fn of_everybody(prefix: &str) -> ConfigError {
    ConfigError::new(format!(
        "{prefix:?} contains every address, so every client would be trusted, exempt or denied; list your proxies or \
         networks, or call `PrefixList::dangerously_everybody()`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(list: &PrefixList, address: &str) -> bool {
        list.contains(address.parse().unwrap())
    }

    #[test]
    fn a_list_contains_the_addresses_of_its_prefixes() {
        let list = PrefixList::new([
            "10.0.0.0/8",
            "10.1.0.0/16",
            " 192.0.2.130/25 ",
            "203.0.113.7",
            "::ffff:198.51.100.0/120",
            "64:ff9b::172.16.0.0/108",
            "fd00::/8",
            "2001:db8::1",
        ])
        .unwrap();
        for inside in [
            "10.0.0.0",
            "10.255.255.255",
            "192.0.2.128",
            "192.0.2.255",
            "203.0.113.7",
            "198.51.100.9",
            "172.31.255.255",
            "::ffff:10.1.2.3",
            "64:ff9b::203.0.113.7",
            "64:ff9b::172.31.255.255",
            "fd12::1",
            "2001:db8::1",
        ] {
            assert!(contains(&list, inside), "{inside}");
        }
        for outside in [
            "9.255.255.255",
            "11.0.0.0",
            "192.0.2.127",
            "203.0.113.6",
            "203.0.113.8",
            "198.51.101.0",
            "172.32.0.0",
            "0.0.0.0",
            "255.255.255.255",
            "fe00::",
            "fcff::",
            "2001:db8::2",
            "::10.0.0.1",
            // The embedded address is not global, so it is forged.
            "64:ff9b::10.1.2.3",
            "64:ff9b::203.0.113.8",
            "::",
        ] {
            assert!(!contains(&list, outside), "{outside}");
        }
        assert!(!contains(&PrefixList::default(), "10.0.0.1"));
        let all = PrefixList::dangerously_everybody();
        assert!(["0.0.0.0", "255.255.255.255", "::", "ffff::"].iter().all(|address| contains(&all, address)));
    }

    #[test]
    fn a_text_with_commas_is_a_list() {
        let list = PrefixList::new(" 10.0.0.0/8,fd00::/8 ,").unwrap();
        assert!(contains(&list, "10.1.2.3") && contains(&list, "fd00::1") && !contains(&list, "11.0.0.0"));
        assert!(!contains(&PrefixList::new("").unwrap(), "10.1.2.3"));
        assert!(contains(&PrefixList::new(String::from("10.0.0.0/8, fd00::/8")).unwrap(), "fd00::1"));
        let more = list.and(["10.1.0.0/16", "192.0.2.0/24"]).validated().unwrap();
        assert!(contains(&more, "10.2.2.3") && contains(&more, "fd00::1") && contains(&more, "192.0.2.9"));
        assert!(PrefixList::new("0.0.0.0/1").unwrap().and("128.0.0.0/1").validated().is_err());
    }

    #[test]
    fn prefixes_of_all_addresses_are_refused() {
        for prefixes in [
            "0.0.0.0/0",
            "10.0.0.0/0",
            "::/0",
            "::ffff:0.0.0.0/96",
            "64:ff9b::/96",
            "0.0.0.0/1, 128.0.0.0/1",
            "::/1,8000::/1",
        ] {
            let error = PrefixList::new(prefixes).unwrap_err();
            assert!(error.to_string().contains(" contains every address, "), "{prefixes}: {error}");
        }
        let as_written = PrefixList::new("10.0.0.0/0").unwrap_err().to_string();
        assert!(as_written.starts_with(r#""10.0.0.0/0" contains "#), "{as_written}");
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        for prefix in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "010.0.0.0/8",
            "fe80::1%eth0",
            "10.0.0.0/8/8",
            "10.0.0.0-10.0.0.9",
            "localhost",
        ] {
            let error = PrefixList::new([prefix]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{prefix:?} is not an address or a prefix; ")), "{error}");
        }
    }
}
