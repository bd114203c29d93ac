//! One node of a proxy chain (RFC 7239, section 6): an address with an optional port, or a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a node is not an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NodeError {
    /// The text is not a node.
    Malformed,
    /// A name in place of an address: `unknown`, `_hidden` (RFC 7239, section 6).
    Opaque,
}

/// Parses `IPv4`, `[IPv6]` or a name, each with an optional port, which is dropped. With `bare`, also parses `IPv6`
/// without brackets.
///
/// The standard library parses the address, and accepts no leading zeros, no short forms and no zones.
pub(super) fn parse(text: &[u8], bare: bool) -> Result<IpAddr, NodeError> {
    let text = str::from_utf8(text).map_err(|_| NodeError::Malformed)?;
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']').ok_or(NodeError::Malformed)?;
        let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        let address = address.parse::<Ipv6Addr>().ok().filter(|_| port_fits);
        return address.map(IpAddr::V6).ok_or(NodeError::Malformed);
    }
    let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
    if port.is_none_or(is_port) {
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Ok(IpAddr::V4(address));
        }
        if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) {
            return Err(NodeError::Opaque);
        }
    }
    let address = text.parse::<Ipv6Addr>().ok().filter(|_| bare);
    address.map(IpAddr::V6).ok_or(NodeError::Malformed)
}

/// Whether `text` is a port number or an obfuscated port (RFC 7239, section 6.2).
fn is_port(text: &str) -> bool {
    matches!(text.len(), 1..=5) && text.bytes().all(|byte| byte.is_ascii_digit()) || is_obfuscated(text)
}

/// Whether `text` is an obfuscated identifier, such as `_hidden` (RFC 7239, section 6.3).
fn is_obfuscated(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.strip_prefix('_').is_some_and(|name| !name.is_empty() && name.bytes().all(allowed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_strictly() {
        use NodeError::{Malformed, Opaque};

        let v4 = Ok("203.0.113.7");
        let v6 = Ok("2001:db8::7");
        for (text, bare, quoted) in [
            ("203.0.113.7", v4, v4),
            ("203.0.113.7:1", v4, v4),
            ("203.0.113.7:51234", v4, v4),
            ("203.0.113.7:_port", v4, v4),
            ("[2001:db8::7]", v6, v6),
            ("[2001:db8::7]:443", v6, v6),
            ("2001:db8::7", v6, Err(Malformed)),
            ("::ffff:203.0.113.7", Ok("::ffff:203.0.113.7"), Err(Malformed)),
            ("unknown", Err(Opaque), Err(Opaque)),
            ("UnKnown:80", Err(Opaque), Err(Opaque)),
            ("_hidden", Err(Opaque), Err(Opaque)),
            ("_a.b-c_d:_e", Err(Opaque), Err(Opaque)),
        ] {
            let parsed = |expected: Result<&str, NodeError>| expected.map(|address| address.parse::<IpAddr>().unwrap());
            assert_eq!(parse(text.as_bytes(), true), parsed(bare), "{text}");
            assert_eq!(parse(text.as_bytes(), false), parsed(quoted), "{text}, in Forwarded");
        }
        for text in [
            "",
            " ",
            "203.0.113",
            "203.0.113.07",
            "203.0.113.7.",
            "203.0.113.256",
            "0xcb007107",
            "3405803783",
            "203.0.113.7:",
            "203.0.113.7:123456",
            "203.0.113.7:+1",
            "203.0.113.7:1:2",
            "203.0.113.7 :1",
            "203.0.113.7/32",
            "[203.0.113.7]",
            "[2001:db8::7",
            "2001:db8::7]",
            "[2001:db8::7]443",
            "[2001:db8::7]:",
            "[]",
            "[",
            "]",
            "fe80::1%eth0",
            "[fe80::1%25eth0]",
            "1:2:3:4:5:6:7:8:443",
            "2001:db8::7::1",
            "_",
            "_:1",
            "unknown:",
            "unix:",
            "_a b",
            "localhost",
            "\"203.0.113.7\"",
            "203.0.113.7\u{ff}",
            "２０３.0.113.7",
        ] {
            assert_eq!(parse(text.as_bytes(), true), Err(Malformed), "{text}");
            assert_eq!(parse(text.as_bytes(), false), Err(Malformed), "{text}, in Forwarded");
        }
        assert_eq!(parse(b"203.0.113.7\xff", true), Err(Malformed));
    }
}
