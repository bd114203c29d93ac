//! Parses `Forwarded` (RFC 7239): the `for` parameter of each element, and a node of a chain (section 6): an address
//! with an optional port, or a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, header::FORWARDED};
use smallvec::SmallVec;

/// Longest header, in bytes of all lines. A header must be read from its start, because a client can open a quote on
/// the left. Reading 32 KiB takes a tenth of a millisecond.
const MAX_LENGTH: usize = 32 * 1024;
/// Most pairs in one element. RFC 7239 registers four parameters.
const MAX_PAIRS: usize = 16;

/// The `for` parameter of an element; `None` for an element without this parameter.
pub(super) type For<'a> = Option<Value<'a>>;

/// The value of a parameter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value<'a> {
    /// The text between the quotes, still escaped.
    Quoted(&'a [u8]),
    Token(&'a [u8]),
}

impl Value<'_> {
    /// The value without its backslashes.
    pub(super) fn unescaped(&self) -> SmallVec<[u8; 64]> {
        let quoted = match self {
            Self::Token(text) => return SmallVec::from_slice(text),
            Self::Quoted(text) => text,
        };
        let mut text = SmallVec::new();
        let mut bytes = quoted.iter();
        while let Some(&byte) = bytes.next() {
            // A backslash is never the last byte: it would have escaped the closing quote.
            text.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
        }
        text
    }
}

/// The last elements of all lines, in order: `wanted` to twice as many, or all elements if there are fewer.
pub(super) fn last_elements(headers: &HeaderMap, wanted: usize) -> Result<SmallVec<[For<'_>; 8]>, NodeError> {
    let lines = || headers.get_all(FORWARDED).iter();
    // Each line counts one byte more, the comma that would join it to the next line.
    lines()
        .try_fold(0, |length, line| Some(length + line.len() + 1).filter(|&length| length <= MAX_LENGTH + 1))
        .ok_or(NodeError::Malformed)?;
    let mut elements = SmallVec::new();
    for line in lines() {
        // Lines are read one by one: a quoted string cannot continue on the next line.
        let mut reader = Reader(line.as_bytes());
        loop {
            reader.skip(|byte| matches!(byte, b',' | b' ' | b'\t'));
            if reader.0.is_empty() {
                break;
            }
            if elements.len() >= 2 * wanted {
                elements.drain(..wanted);
            }
            elements.push(reader.element()?);
        }
    }
    Ok(elements)
}

/// A parser over the unread rest of a line.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads pairs, some of which may be empty, separated by semicolons, up to a comma or the end.
    ///
    /// Accepts white space around semicolons, which the grammar does not have, because some proxies write it.
    fn element(&mut self) -> Result<For<'a>, NodeError> {
        let mut node = None;
        let mut names = SmallVec::<[&[u8]; 4]>::new();
        for _ in 0..MAX_PAIRS {
            self.skip(is_white);
            if !matches!(self.0.first(), None | Some(b',' | b';')) {
                let (name, value) = self.pair()?;
                if names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                    return Err(NodeError::Malformed);
                }
                names.push(name);
                if name.eq_ignore_ascii_case(b"for") {
                    node = Some(value);
                }
                self.skip(is_white);
            }
            match self.0.split_first() {
                None | Some((b',', _)) => return Ok(node),
                Some((b';', rest)) => self.0 = rest,
                Some(_) => return Err(NodeError::Malformed),
            }
        }
        Err(NodeError::Malformed)
    }

    fn pair(&mut self) -> Result<(&'a [u8], Value<'a>), NodeError> {
        let name = self.token()?;
        self.0 = self.0.strip_prefix(b"=").ok_or(NodeError::Malformed)?;
        let value =
            if self.0.starts_with(b"\"") { self.quoted().map(Value::Quoted) } else { self.token().map(Value::Token) };
        Ok((name, value?))
    }

    fn token(&mut self) -> Result<&'a [u8], NodeError> {
        let token = self.skip(is_token);
        if token.is_empty() { Err(NodeError::Malformed) } else { Ok(token) }
    }

    /// Reads a quoted string, whose opening quote is next.
    fn quoted(&mut self) -> Result<&'a [u8], NodeError> {
        let text = &self.0[1..];
        let mut at = 0;
        loop {
            match text.get(at) {
                None => return Err(NodeError::Malformed),
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
            }
        }
        self.0 = &text[at + 1..];
        Ok(&text[..at])
    }

    /// Reads bytes while `skipped` holds, and returns them.
    fn skip(&mut self, skipped: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| !skipped(byte)).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        text
    }
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Whether a byte may be in a token (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

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

    fn nodes(lines: &[&str]) -> Result<Vec<Option<String>>, NodeError> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED, line.parse().unwrap());
        }
        let text = |value: Value<'_>| String::from_utf8(value.unescaped().to_vec()).unwrap();
        Ok(last_elements(&headers, 4)?.into_iter().map(|node| node.map(text)).collect())
    }

    #[test]
    fn elements_are_read() {
        let of = |nodes: &[&str]| Ok(nodes.iter().map(|node| Some(node.to_string())).collect());
        assert_eq!(nodes(&[]), of(&[]));
        assert_eq!(nodes(&["", " ,, "]), of(&[]));
        assert_eq!(nodes(&["for=192.0.2.60;proto=http;by=203.0.113.43"]), of(&["192.0.2.60"]));
        assert_eq!(nodes(&["proto=http;FOR=a, for=b,,for=\"c,;d\"", "By=x;For=e"]), of(&["a", "b", "c,;d", "e"]));
        assert_eq!(nodes(&["for=a; proto=http ;host=b , for=c;"]), of(&["a", "c"]));
        assert_eq!(nodes(&[r#"host="a\"b,for=x";for="[2001:db8::\1]:80""#]), of(&["[2001:db8::1]:80"]));
        assert_eq!(nodes(&["for=\"\""]), of(&[""]));
        assert_eq!(nodes(&["proto=http, ;, for=a"]), Ok(vec![None, None, Some("a".into())]));
    }

    #[test]
    fn invalid_elements_are_malformed() {
        for line in [
            "for",
            "for=",
            "=a",
            "for=a b",
            "for =a",
            "for= a",
            "for=a;for=b",
            "for=a;FOR=b",
            "for=a;x=1;X=2",
            "a=b;c",
            "for=\"a",
            "for=\"a\\\"",
            "for=\"a\"b",
            "for=[::1]",
            "for=1.2.3.4:80",
            "for=a\"b\"",
            "for=é",
            "for=a;;;=",
            "for=<script>",
            "(for=a)",
            "for=a, \"",
        ] {
            assert_eq!(nodes(&[line]), Err(NodeError::Malformed), "{line}");
            assert_eq!(nodes(&[line, "for=203.0.113.7"]), Err(NodeError::Malformed), "{line}, to the left");
        }
        assert_eq!(nodes(&["for=\"a", "b\""]), Err(NodeError::Malformed), "a quote in two lines");
    }

    #[test]
    fn lengths_are_bounded() {
        assert!(nodes(&["x=1;".repeat(MAX_PAIRS).as_str()]).is_err());
        assert!(nodes(&[";".repeat(MAX_PAIRS).as_str()]).is_err());
        assert!(nodes(&[&format!("for=\"{}\"", "x".repeat(MAX_LENGTH - 6))]).is_ok());
        assert!(nodes(&[&format!("for=\"{}\"", "x".repeat(MAX_LENGTH - 5))]).is_err());
        let many: Vec<String> = (0..1_000).map(|node| format!("for={node}")).collect();
        let last = nodes(&[&many.join(",")]).unwrap();
        assert!((4..=8).contains(&last.len()));
        assert_eq!(last.last().unwrap().as_deref(), Some("999"));
    }

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
