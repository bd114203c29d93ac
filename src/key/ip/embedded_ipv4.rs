//! IPv4 addresses inside IPv6 addresses: NAT64 (RFC 6052) and 6to4 (RFC 3056).

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

use crate::error::ConfigError;

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
    pub(super) fn global_ipv4(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
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
pub(super) fn six_to_four(address: Ipv6Addr) -> Option<Option<Ipv4Addr>> {
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
