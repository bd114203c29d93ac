//! Groups addresses into keys.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use smallvec::SmallVec;

use super::embedded_ipv4::{Nat64, WELL_KNOWN, six_to_four};
use crate::{error::ConfigError, key::subject::Key};

/// The rules by which addresses share a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grouping {
    /// Length in bits of the IPv6 prefix that shares a key.
    prefix: u8,
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
            IpAddr::V4(address) => ipv4(address),
            IpAddr::V6(address) => match six_to_four(address) {
                Some(Some(embedded)) => ipv4(embedded),
                // One 6to4 router has a /48.
                Some(None) => ipv6(address, 48),
                // These addresses need all bits: all hosts of a link share the first 64, and so do all clients of a
                // translator.
                None if address.is_unicast_link_local() || self.translation(address).is_some() => ipv6(address, 128),
                None => ipv6(address, self.prefix),
            },
        }
    }
}

impl Default for Grouping {
    fn default() -> Self {
        Self { prefix: 64, well_known: true, nat64: None }
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
}
