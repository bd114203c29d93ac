//! From an address to the key of its network.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use smallvec::SmallVec;

use crate::{error::ConfigError, key::Key};

/// Which addresses count as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    prefix: u8,
    nat64: bool,
}

/// The first 96 bits of `64:ff9b::/96` (RFC 6052, section 2.1).
const NAT64: u128 = 0x0064_ff9b << 64;

impl Network {
    pub(super) fn ipv6_prefix(self, length: u8) -> Result<Self, ConfigError> {
        if !(32..=128).contains(&length) {
            return Err(ConfigError::InvalidPrefixLength { length });
        }
        Ok(Self { prefix: length, ..self })
    }

    pub(super) fn keep_nat64(self) -> Self {
        Self { nat64: false, ..self }
    }

    /// The one form of an address: what carries an IPv4 address is that address.
    pub(super) fn canonical(self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V6(address) if self.nat64 && address.to_bits() >> 32 == NAT64 => {
                // The cut is meant: the last 32 bits are the address.
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() as u32))
            }
            address => address,
        }
    }

    /// The key of a canonical address.
    pub(super) fn key(self, address: IpAddr) -> Key {
        match address {
            IpAddr::V4(address) => ipv4(address),
            IpAddr::V6(address) => {
                let mut text = SmallVec::<[u8; 48]>::new();
                let network = Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - self.prefix)));
                // Writing to a vector cannot fail.
                let _ = match self.prefix {
                    128 => write!(text, "{network}"),
                    prefix => write!(text, "{network}/{prefix}"),
                };
                Key::new(text)
            }
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self { prefix: 64, nat64: true }
    }
}

/// By hand, for formatting would take longer than all else that is done with the key.
fn ipv4(address: Ipv4Addr) -> Key {
    let mut text = [0; 16];
    let mut length = 0;
    for octet in address.octets() {
        let (digits, count) = &OCTETS[usize::from(octet)];
        text[length..length + 4].copy_from_slice(digits);
        length += count + 1;
    }
    // Without the last dot.
    Key::plain(&text[..length - 1])
}

/// The digits of a number and a dot, and how many digits there are.
static OCTETS: [([u8; 4], usize); 256] = {
    let mut octets = [([b'.'; 4], 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let (digits, count) = &mut octets[octet];
        let mut unit = 100;
        while unit > 0 {
            if octet >= unit || unit == 1 {
                digits[*count] = b'0' + (octet / unit % 10) as u8;
                *count += 1;
            }
            unit /= 10;
        }
        octet += 1;
    }
    octets
};

#[cfg(test)]
mod tests {
    use super::*;

    fn key(network: Network, address: &str) -> Key {
        network.key(network.canonical(address.parse().unwrap()))
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
            assert_eq!(key(Network::default(), address), Key::from(expected), "{address}");
        }
        let whole = Network::default().ipv6_prefix(128).unwrap().keep_nat64();
        assert_eq!(key(whole, "2001:db8::1"), Key::from("2001:db8::1"));
        assert_eq!(key(whole, "64:ff9b::203.0.113.7"), Key::from("64:ff9b::cb00:7107"));
        for length in [0, 31, 129] {
            assert_eq!(whole.ipv6_prefix(length).unwrap_err(), ConfigError::InvalidPrefixLength { length });
        }
    }
}
