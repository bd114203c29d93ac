//! Groups addresses into keys, also IPv4 addresses inside IPv6 addresses: NAT64 (RFC 6052) and 6to4 (RFC 3056).

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;
use smallvec::SmallVec;

use crate::{error::ConfigError, key::subject::Key};

/// The rules by which addresses share a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping {
    /// Length in bits of the IPv6 prefix that shares a key.
    prefix: u8,
    /// Length in bits of the IPv4 prefix that shares a key.
    ipv4_prefix: u8,
    /// Whether addresses in the well-known NAT64 prefix are decoded.
    well_known: bool,
    /// The NAT64 prefix of the operator.
    nat64: Option<Nat64>,
}

/// An address in the two forms that are compared with prefixes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    /// The received address, unmapped.
    pub(super) received: IpAddr,
    /// The received address in [canonical](Grouping::canonical) form.
    pub(super) canonical: IpAddr,
}

impl Grouping {
    pub(super) fn with_ipv6_prefix(self, length: u8) -> Result<Self, ConfigError> {
        if !(32..=128).contains(&length) {
            return Err(ConfigError::new(format!(
                "an IPv6 prefix of /{length} is out of range; use 32 to 128, /64 is the default"
            )));
        }
        Ok(Self { prefix: length, ..self })
    }

    pub(super) fn with_ipv4_prefix(self, length: u8) -> Result<Self, ConfigError> {
        if !(8..=32).contains(&length) {
            return Err(ConfigError::new(format!(
                "an IPv4 prefix of /{length} is out of range; use 8 to 32, /32 is the default"
            )));
        }
        Ok(Self { ipv4_prefix: length, ..self })
    }

    pub(super) fn keep_nat64(self) -> Self {
        Self { well_known: false, ..self }
    }

    pub(super) fn with_nat64_prefix(self, prefix: &str) -> Result<Self, ConfigError> {
        Ok(Self { nat64: Some(Nat64::parse(prefix)?), ..self })
    }

    /// Returns both forms of an address.
    pub(super) fn read(self, address: IpAddr) -> Address {
        Address { received: address.to_canonical(), canonical: self.canonical(address) }
    }

    /// The canonical form of an address, for trust and for keys. An IPv6 address that embeds a global IPv4 address
    /// becomes that IPv4 address.
    pub(super) fn canonical(self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let embedded = self.translation(address).and_then(|nat64| nat64.global_ipv4(address));
                embedded.map_or(IpAddr::V6(address), IpAddr::V4)
            }
        }
    }

    /// The NAT64 prefix that contains the address.
    fn translation(self, address: Ipv6Addr) -> Option<Nat64> {
        let well_known = self.well_known.then_some(WELL_KNOWN);
        self.nat64.into_iter().chain(well_known).find(|nat64| nat64.holds(address))
    }

    /// The key of an address in any form.
    pub(super) fn key_of(self, address: IpAddr) -> Key {
        self.key(self.canonical(address))
    }

    /// The key of a canonical address.
    pub(super) fn key(self, address: IpAddr) -> Key {
        match address {
            IpAddr::V4(address) => self.ipv4(address),
            IpAddr::V6(address) => match six_to_four(address) {
                Some(Some(embedded)) => self.ipv4(embedded),
                // One 6to4 router has a /48.
                Some(None) => ipv6(address, 48),
                // These addresses need all bits: all hosts of a link share the first 64, and so do all clients of a
                // translator.
                None if address.is_unicast_link_local() || self.translation(address).is_some() => ipv6(address, 128),
                None => ipv6(address, self.prefix),
            },
        }
    }

    fn ipv4(self, address: Ipv4Addr) -> Key {
        if self.ipv4_prefix == 32 { ipv4(address) } else { ipv4_network(address, self.ipv4_prefix) }
    }
}

impl Default for Grouping {
    fn default() -> Self {
        Self { prefix: 64, ipv4_prefix: 32, well_known: true, nat64: None }
    }
}

/// The key of the first `prefix` bits of an address.
fn ipv6(address: Ipv6Addr, prefix: u8) -> Key {
    let mut text = SmallVec::<[u8; 48]>::new();
    let network = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - prefix)));
    // Writing to a `SmallVec` cannot fail.
    let _ = match prefix {
        128 => write!(text, "{network}"),
        prefix => write!(text, "{network}/{prefix}"),
    };
    Key::new(text)
}

/// The key of the first `prefix` bits of an address, from 1 to 31.
#[cold]
fn ipv4_network(address: Ipv4Addr, prefix: u8) -> Key {
    let network = Ipv4Addr::from_bits(address.to_bits() & (u32::MAX << (32 - prefix)));
    Key::new(format!("{network}/{prefix}"))
}

/// The key of an IPv4 address. Formats with a table, because the standard formatter takes longer than the rest of the
/// extraction, and in a register, because bytes that were just written one by one are slow to copy.
fn ipv4(address: Ipv4Addr) -> Key {
    let (mut text, mut length) = (0_u128, 0);
    for octet in address.octets() {
        let (digits, count) = OCTETS[usize::from(octet)];
        text |= u128::from(u32::from_le_bytes(digits)) << (8 * length);
        length += count + 1;
    }
    // Without the dot after the last octet.
    length -= 1;
    Key::short(text & !(u128::MAX << (8 * length)), length)
}

/// For each octet: the text of its digits and a dot, followed by zeros, and the number of digits.
static OCTETS: [([u8; 4], u8); 256] = {
    let mut octets = [([0; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let (digits, count) = &mut octets[octet];
        let mut unit = 100;
        while unit > 0 {
            if octet >= unit || unit == 1 {
                digits[*count as usize] = b'0' + (octet / unit % 10) as u8;
                *count += 1;
            }
            unit /= 10;
        }
        digits[*count as usize] = b'.';
        octet += 1;
    }
    octets
};

/// The prefix under which a NAT64 translator embeds IPv4 addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nat64 {
    prefix: u128,
    length: u8,
}

/// The well-known prefix `64:ff9b::/96` (RFC 6052, section 2.1).
pub(super) const WELL_KNOWN: Nat64 = Nat64 { prefix: 0x0064_ff9b << 96, length: 96 };

/// Bits 64 to 71, which are always 0 (RFC 6052, section 2.2).
const RESERVED: u128 = 0xff << 56;

impl Nat64 {
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let invalid = || {
            ConfigError::new(format!(
                "{text:?} is not a NAT64 prefix (RFC 6052); write 2001:db8:122::/96 or another one of length 32, 40, \
                 48, 56, 64 or 96 whose bits 64 to 71 are 0"
            ))
        };
        let net = text.trim().parse::<Ipv6Net>().map_err(|_| invalid())?.trunc();
        let prefix = net.network().to_bits();
        if !matches!(net.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96) || prefix & RESERVED != 0 {
            return Err(invalid());
        }
        Ok(Self { prefix, length: net.prefix_len() })
    }

    pub(super) fn holds(self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.prefix) >> (128 - self.length) == 0
    }

    /// The IPv4 address inside an address of this prefix, if the IPv4 address is global.
    ///
    /// An IPv4 address that is not global is not decoded, because it is forged: a translator must not pass it on (RFC
    /// 6052, section 3.1). Decoded, the address could be trusted as this host or its private network.
    fn global_ipv4(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = address.to_bits();
        let embedded = if self.length == 96 {
            bits
        } else if bits & RESERVED != 0 {
            return None;
        } else {
            // The IPv4 address continues after the reserved bits.
            let after_reserved = bits & ((1 << 56) - 1);
            let without_reserved = (bits & !((1 << 64) - 1)) | (after_reserved << 8);
            without_reserved >> (96 - self.length)
        };
        Some(last_bits(Ipv6Addr::from_bits(embedded))).filter(|&address| is_global(address))
    }
}

/// The last 32 bits as an IPv4 address.
pub(super) fn last_bits(address: Ipv6Addr) -> Ipv4Addr {
    // The truncation keeps the last 32 bits.
    Ipv4Addr::from_bits(address.to_bits() as u32)
}

/// For a 6to4 address, `2002::/16`: the IPv4 address of its router, or `Some(None)` if that address is not global.
/// `None` for all other addresses.
///
/// The router's address is used for charging and never for trust, because any host can send from a 6to4 address.
fn six_to_four(address: Ipv6Addr) -> Option<Option<Ipv4Addr>> {
    let bits = address.to_bits();
    let embedded = last_bits(Ipv6Addr::from_bits(bits >> 80));
    (bits >> 112 == 0x2002).then(|| Some(embedded).filter(|&address| is_global(address)))
}

/// Whether an address may belong to a host on the internet (RFC 6890). Documentation addresses count as global.
fn is_global(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let this_network = first == 0;
    let shared = first == 100 && second & 0xc0 == 64;
    let protocols = [first, second, third] == [192, 0, 0];
    let relays = [first, second, third] == [192, 88, 99];
    let benchmarks = first == 198 && second & 0xfe == 18;
    let multicast_or_reserved = first >= 224;
    let private_or_local = address.is_private() || address.is_loopback() || address.is_link_local();
    !(this_network || shared || protocols || relays || benchmarks || multicast_or_reserved || private_or_local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(network: Grouping, address: &str) -> Key {
        network.key_of(address.parse().unwrap())
    }

    #[test]
    fn addresses_are_unmapped_and_grouped() {
        for (address, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("64:ff9b::203.0.113.7", "203.0.113.7"),
            ("64:ff9b:1::203.0.113.7", "64:ff9b:1::/64"),
            ("64:ff9b::1:203.0.113.7", "64:ff9b::/64"),
            ("::203.0.113.7", "::/64"),
            ("255.100.99.10", "255.100.99.10"),
            ("0.9.101.200", "0.9.101.200"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(key(Grouping::default(), address), Key::from(expected), "{address}");
        }
        let whole = Grouping::default().with_ipv6_prefix(128).unwrap().keep_nat64();
        assert_eq!(key(whole, "2001:db8::1"), Key::from("2001:db8::1"));
        assert_eq!(key(whole, "64:ff9b::203.0.113.7"), Key::from("64:ff9b::cb00:7107"));
        assert_eq!(key(whole, "2002:a00:1::1"), Key::from("2002:a00:1::/48"));
        for length in [0, 31, 129] {
            let error = whole.with_ipv6_prefix(length).unwrap_err().to_string();
            assert!(error.starts_with(&format!("an IPv6 prefix of /{length} is out of range; ")), "{error}");
        }
    }

    #[test]
    fn ipv4_addresses_are_grouped_in_every_form_if_a_prefix_is_set() {
        let by_24 = Grouping::default().with_ipv4_prefix(24).unwrap();
        for address in
            ["203.0.113.7", "203.0.113.255", "::ffff:203.0.113.8", "64:ff9b::203.0.113.9", "2002:cb00:710a::1"]
        {
            assert_eq!(key(by_24, address), Key::from("203.0.113.0/24"), "{address}");
        }
        assert_eq!(key(by_24, "203.0.114.7"), Key::from("203.0.114.0/24"));
        assert_eq!(key(by_24, "2001:db8:1:2::1"), Key::from("2001:db8:1:2::/64"));
        for (length, expected) in [(8, "203.0.0.0/8"), (27, "203.0.113.224/27"), (31, "203.0.113.254/31")] {
            let network = Grouping::default().with_ipv4_prefix(length).unwrap();
            assert_eq!(key(network, "203.0.113.255"), Key::from(expected));
        }
        assert_eq!(key(by_24.with_ipv4_prefix(32).unwrap(), "203.0.113.7"), Key::from("203.0.113.7"));
        for length in [0, 7, 33] {
            let error = by_24.with_ipv4_prefix(length).unwrap_err().to_string();
            assert!(error.starts_with(&format!("an IPv4 prefix of /{length} is out of range; ")), "{error}");
        }
    }

    /// All hosts of a link share one /64, and so do all clients of a translator.
    #[test]
    fn addresses_in_a_shared_prefix_are_keyed_by_their_other_bits() {
        let own = Grouping::default().with_nat64_prefix("2001:db8:122:344::/64").unwrap();
        for (network, address, expected) in [
            (Grouping::default(), "fe80::1:2:3:4", "fe80::1:2:3:4"),
            (Grouping::default(), "febf:ffff::1", "febf:ffff::1"),
            (Grouping::default(), "fec0::1", "fec0::/64"),
            (Grouping::default(), "2002:cb00:7107:1::1", "203.0.113.7"),
            (Grouping::default(), "2002:cb00:7107:2::9", "203.0.113.7"),
            (Grouping::default(), "2002:a00:1:2::1", "2002:a00:1::/48"),
            (Grouping::default(), "2002:7f00:1:2::1", "2002:7f00:1::/48"),
            (Grouping::default(), "64:ff9b::10.0.0.1", "64:ff9b::a00:1"),
            (Grouping::default(), "64:ff9b::127.0.0.1", "64:ff9b::7f00:1"),
            (Grouping::default(), "2001:db8:122:344:c0:2:2100::", "2001:db8:122:344::/64"),
            (own, "2001:db8:122:344:c0:2:2100::", "192.0.2.33"),
            (own, "2001:db8:122:344:a:0:100::", "2001:db8:122:344:a:0:100:0"),
            (own, "64:ff9b::192.0.2.33", "192.0.2.33"),
            (own.keep_nat64(), "64:ff9b::192.0.2.33", "64:ff9b::/64"),
        ] {
            assert_eq!(key(network, address), Key::from(expected), "{address}");
        }
    }

    /// The table of RFC 6052, section 2.4.
    #[test]
    fn addresses_are_decoded_as_the_rfc_says() {
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let (nat64, address) = (Nat64::parse(prefix).unwrap(), address.parse().unwrap());
            assert!(nat64.holds(address), "{prefix}");
            assert_eq!(nat64.global_ipv4(address), Some(Ipv4Addr::new(192, 0, 2, 33)), "{prefix}");
        }
        let nat64 = Nat64::parse("2001:db8:122::/48").unwrap();
        assert_eq!(nat64.global_ipv4("2001:db8:122:c000:102:2100::".parse().unwrap()), None, "reserved bits");
        assert!(!nat64.holds("2001:db8:123:c000:2:2100::".parse().unwrap()));
    }

    #[test]
    fn addresses_that_are_not_global_are_not_decoded() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            assert_eq!(WELL_KNOWN.global_ipv4(format!("64:ff9b::{address}").parse().unwrap()), None, "{address}");
        }
        for address in ["1.1.1.1", "100.63.0.1", "100.128.0.1", "172.32.0.1", "192.0.2.1", "203.0.113.7"] {
            let embedded = WELL_KNOWN.global_ipv4(format!("64:ff9b::{address}").parse().unwrap());
            assert_eq!(embedded, Some(address.parse().unwrap()));
        }
    }

    #[test]
    fn invalid_nat64_prefixes_are_refused() {
        for prefix in [
            "",
            "2001:db8:122::",
            "2001:db8::/33",
            "2001:db8::/128",
            "192.0.2.0/24",
            "2001:db8:122:344:ff00::/96",
            "nat64",
        ] {
            let error = Nat64::parse(prefix).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{prefix:?} is not a NAT64 prefix (RFC 6052); write ")), "{error}");
        }
    }
}
