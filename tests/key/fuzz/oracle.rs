//! A second implementation of the rules, slow and of another design: lists are split first, and quotes are found before
//! anything else is parsed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::extract::ConnectInfo;
use http::{HeaderName, request::Parts};
use tollgate::ClientIp;
use tollgate::key::{KeyError, PrefixList};

use crate::support::random::Random;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    Forwarded,
    List,
    Single,
}

/// An extractor, and its settings for the oracle.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) client: ClientIp,
    pub(crate) header: HeaderName,
    pub(crate) shape: Shape,
    pub(crate) hops: Option<usize>,
    trusts_all: bool,
    lenient: bool,
}

const TRUSTED: [&str; 2] = ["10.0.0.0/8", "fd00::/8"];
const MAX_HOPS: usize = 64;

impl Settings {
    pub(crate) fn all() -> Vec<Self> {
        let of = |client: ClientIp, header, shape| {
            let header = HeaderName::from_static(header);
            Self { client, header, shape, hops: None, trusts_all: false, lenient: false }
        };
        let list = || of(ClientIp::x_forwarded_for(TRUSTED).unwrap(), "x-forwarded-for", Shape::List);
        let forwarded = || of(ClientIp::forwarded(TRUSTED).unwrap(), "forwarded", Shape::Forwarded);
        let lenient = |settings: Settings| Settings {
            client: settings.client.peer_if_missing().proxy_if_opaque().trust_unix_peer(),
            lenient: true,
            ..settings
        };
        let counted = |settings: Settings, client: ClientIp, hops| Settings {
            client: client.only_from(TRUSTED),
            hops: Some(hops),
            ..settings
        };
        let all = PrefixList::dangerously_everybody();
        vec![
            list(),
            forwarded(),
            of(ClientIp::header("x-real-ip", TRUSTED).unwrap(), "x-real-ip", Shape::Single),
            lenient(list()),
            lenient(forwarded()),
            lenient(of(ClientIp::header("cf-connecting-ip", TRUSTED).unwrap(), "cf-connecting-ip", Shape::Single)),
            counted(list(), ClientIp::x_forwarded_for(2).unwrap(), 2),
            counted(forwarded(), ClientIp::forwarded(1).unwrap(), 1),
            lenient(counted(forwarded(), ClientIp::forwarded(3).unwrap(), 3)),
            Settings { client: list().client.only_from(all), trusts_all: true, ..list() },
        ]
    }

    /// A header that the extractor does not read.
    pub(crate) fn another_header(&self, random: &mut Random) -> HeaderName {
        let names = ["x-forwarded-for", "forwarded", "x-real-ip", "cf-connecting-ip", "true-client-ip"];
        let name = random.pick(&names);
        HeaderName::from_static(if self.header == name { "fly-client-ip" } else { name })
    }

    /// Whether the extractor must return the true client of an undamaged header.
    pub(crate) fn trusts_header(&self, head: &Parts) -> bool {
        !self.trusts_all && peer(head).map_or(self.lenient, |peer| self.trusts(peer))
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.trusts_all
            || match address {
                IpAddr::V4(address) => address.octets()[0] == 10,
                IpAddr::V6(address) => address.octets()[0] == 0xfd,
            }
    }

    /// The address, or the name of the error, that the extractor must return.
    pub(crate) fn expected(&self, head: &Parts) -> Result<IpAddr, &'static str> {
        let peer = peer(head);
        if !peer.map_or(self.lenient, |peer| self.trusts(peer)) {
            return peer.ok_or("no peer");
        }
        let missing = || if self.lenient { peer.ok_or("no peer") } else { Err("missing") };
        let lines: Vec<&[u8]> = head.headers.get_all(&self.header).iter().map(|line| line.as_bytes()).collect();
        let nodes: Vec<_> = match self.shape {
            Shape::Single => {
                return match lines[..] {
                    [] => missing(),
                    [line] => node(line, true).map_err(|_| "malformed"),
                    _ => Err("repeated"),
                };
            }
            Shape::List => {
                let joined = lines.join(&b","[..]);
                let elements = joined.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
                elements.filter(|element| !element.is_empty()).map(|element| node(element, true)).collect()
            }
            Shape::Forwarded => {
                let mut nodes = Vec::new();
                for line in lines {
                    for element in split(line, b',')? {
                        nodes.push(pairs(element)?);
                    }
                }
                nodes.into_iter().map(|value| node(&value.ok_or("opaque")?, false)).collect()
            }
        };
        if nodes.is_empty() {
            return missing();
        }
        let vouching = |index: usize| if index + 1 < nodes.len() { nodes[index + 1].ok() } else { peer };
        let read = |index: usize| match nodes[index] {
            Err("opaque") if self.lenient => vouching(index).ok_or("opaque"),
            node => node,
        };
        if let Some(hops) = self.hops {
            return nodes.len().checked_sub(hops).map_or(Err("too short"), read);
        }
        for (walked, index) in (0..nodes.len()).rev().enumerate() {
            if walked == MAX_HOPS {
                return Err("too many");
            }
            let address = read(index)?;
            if index == 0 || nodes[index].is_err() || !self.trusts(address) {
                return Ok(address);
            }
        }
        unreachable!("the loop returns at the leftmost entry")
    }
}

fn peer(head: &Parts) -> Option<IpAddr> {
    head.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip())
}

/// Splits at a separator outside of quotes. Empty elements of a list are dropped.
fn split(text: &[u8], separator: u8) -> Result<Vec<&[u8]>, &'static str> {
    let (mut pieces, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == separator && !quoted => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    if quoted || text.len() > 32 * 1024 {
        return Err("malformed");
    }
    Ok(pieces.into_iter().map(<[u8]>::trim_ascii).filter(|piece| separator == b';' || !piece.is_empty()).collect())
}

/// The value of the `for` parameter of an element.
fn pairs(element: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let pieces = split(element, b';')?;
    if pieces.len() > 16 {
        return Err("malformed");
    }
    let mut seen: Vec<(String, Vec<u8>)> = Vec::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        let equals = piece.iter().position(|&byte| byte == b'=').ok_or("malformed")?;
        let (name, value) = (&piece[..equals], &piece[equals + 1..]);
        let name = token(name).ok_or("malformed")?.to_lowercase();
        let value = match token(value) {
            Some(value) => value.as_bytes().to_vec(),
            None => unquoted(value).ok_or("malformed")?,
        };
        if seen.iter().any(|(other, _)| *other == name) {
            return Err("malformed");
        }
        seen.push((name, value));
    }
    Ok(seen.into_iter().find(|(name, _)| name == "for").map(|(_, value)| value))
}

fn token(text: &[u8]) -> Option<&str> {
    let text = str::from_utf8(text).ok().filter(|text| !text.is_empty())?;
    let sign = |sign: char| sign.is_ascii_graphic() && !"\"(),/:;<=>?@[\\]{}".contains(sign);
    text.chars().all(sign).then_some(text)
}

fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let inner = text.strip_prefix(b"\"")?;
    let (mut value, mut bytes) = (Vec::new(), inner.iter());
    loop {
        match bytes.next()? {
            b'"' => return bytes.as_slice().is_empty().then_some(value),
            b'\\' => value.push(*bytes.next()?),
            byte => value.push(*byte),
        }
    }
}

/// The address of a node. `bare` allows IPv6 addresses without brackets.
fn node(text: &[u8], bare: bool) -> Result<IpAddr, &'static str> {
    let text = str::from_utf8(if bare { text.trim_ascii() } else { text }).map_err(|_| "malformed")?;
    if text.len() > 256 && bare {
        return Err("malformed");
    }
    let hidden = |name: &str| {
        let name = name.strip_prefix('_');
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|sign| sign.is_ascii_alphanumeric() || "._-".contains(sign))
        })
    };
    let whole = |name: &str, bare: bool| match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => Ok(IpAddr::V4(address)),
        Ok(address) if bare => Ok(canonical(address)),
        _ if hidden(name) || name.to_lowercase() == "unknown" => Err("opaque"),
        _ => match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(name) => name.parse::<Ipv6Addr>().map(|address| canonical(address.into())).map_err(|_| "malformed"),
            None => Err("malformed"),
        },
    };
    match (whole(text, bare), text.rsplit_once(':')) {
        (Err("malformed"), Some((name, port)))
            if hidden(port) || (1..=5).contains(&port.len()) && port.chars().all(|digit| digit.is_ascii_digit()) =>
        {
            whole(name, false)
        }
        (read, _) => read,
    }
}

/// IPv4 addresses that are mapped or translated into IPv6, as IPv4.
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let v4 = |a: u16, b: u16| Ipv4Addr::from_bits((u32::from(a) << 16) | u32::from(b));
    match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, a, b] => v4(a, b).into(),
        [0x64, 0xff9b, 0, 0, 0, 0, a, b] if translated(v4(a, b)) => v4(a, b).into(),
        _ => address,
    }
}

/// Whether a NAT64 translator forwards packets of the address.
pub(crate) fn translated(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        [0 | 10 | 127 | 224.., ..] | [100, 64..=127, ..] | [169, 254, ..] | [172, 16..=31, ..] | [192, 168, ..]
    )
}

/// The name of an error, as in the results of [`Settings::expected`].
pub(crate) fn name(error: &KeyError) -> &'static str {
    match error.cause() {
        "chain_too_short" => "too short",
        "malformed_header" => "malformed",
        "missing_header" => "missing",
        "no_peer" => "no peer",
        "opaque_client" => "opaque",
        "repeated_header" => "repeated",
        "too_many_hops" => "too many",
        _ => "another error",
    }
}
