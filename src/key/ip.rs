//! Keys from the connection's address.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use http::{Extensions, request::Parts};
use smallvec::SmallVec;

use super::{Key, KeyError, KeyExtractor, KeyOrigin};
use crate::error::ConfigError;

/// Charges the address of the connection's other end.
///
/// IPv4 addresses are charged one by one, also when they come mapped into IPv6 (`::ffff:a.b.c.d`). IPv6 addresses are
/// grouped by prefix, /64 by default, because one customer usually has a whole one. Behind a proxy, the other end is
/// the proxy.
///
/// The address is taken from axum's `ConnectInfo<SocketAddr>` or `MockConnectInfo<SocketAddr>`, or from a
/// [`SocketAddr`] or [`IpAddr`] in the request's extensions. Without any of them the answer is
/// [`KeyError::NoPeerAddress`].
#[derive(Clone, Copy, Debug)]
pub struct PeerIp {
    prefix: u8,
}

impl PeerIp {
    /// Groups IPv6 addresses by the first `length` bits. Defaults to 64.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidPrefixLength`] unless `length` is 32 to 128.
    pub fn ipv6_prefix(self, length: u8) -> Result<Self, ConfigError> {
        if !(32..=128).contains(&length) {
            return Err(ConfigError::InvalidPrefixLength { length });
        }
        Ok(Self { prefix: length })
    }

    fn key(self, address: IpAddr) -> Key {
        match address.to_canonical() {
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

impl Default for PeerIp {
    fn default() -> Self {
        Self { prefix: 64 }
    }
}

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        peer(&parts.extensions).map(|address| Some(self.key(address))).ok_or(KeyError::NoPeerAddress)
    }

    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Peer
    }
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    connect_info(extensions)
        .or_else(|| extensions.get::<SocketAddr>().map(SocketAddr::ip))
        .or_else(|| extensions.get::<IpAddr>().copied())
}

#[cfg(feature = "axum")]
fn connect_info(extensions: &Extensions) -> Option<IpAddr> {
    use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};

    let real = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    real.or_else(|| extensions.get::<MockConnectInfo<SocketAddr>>().map(|info| info.0)).map(|address| address.ip())
}

#[cfg(not(feature = "axum"))]
fn connect_info(_: &Extensions) -> Option<IpAddr> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unmapped_and_grouped() {
        let peer = PeerIp::default();
        for (address, key) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("255.100.99.10", "255.100.99.10"),
            ("0.9.101.200", "0.9.101.200"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ] {
            assert_eq!(peer.key(address.parse().unwrap()), Key::from(key), "{address}");
        }
        let whole = peer.ipv6_prefix(128).unwrap();
        assert_eq!(whole.key("2001:db8::1".parse().unwrap()), Key::from("2001:db8::1"));
        for length in [0, 31, 129] {
            assert_eq!(peer.ipv6_prefix(length).unwrap_err(), ConfigError::InvalidPrefixLength { length });
        }
    }
}
