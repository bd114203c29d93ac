//! A generator of proxy chains in every spelling, with forged entries before them and damage.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::damage::damage;
use super::oracle::{Settings, Shape, translated};
use crate::support::random::Random;

/// A trusted proxy.
pub(crate) const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
/// A client that connects directly, past the proxies.
pub(crate) const OUTSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 99));

/// The lines of the header that the extractor reads.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) lines: Vec<Vec<u8>>,
    /// The client of the outermost proxy, unless the lines of the proxies are damaged.
    pub(crate) client: Option<IpAddr>,
}

impl Chain {
    pub(crate) fn new(random: &mut Random, settings: &Settings) -> Self {
        let client = untrusted(random);
        // Forged lines from the client, which may be malformed.
        let mut lines: Vec<Vec<u8>> = (0..random.index(3))
            .map(|_| {
                let nodes: Vec<_> = (0..random.index(5)).map(|_| any_node(random)).collect();
                let mut line = list(random, settings.shape, &nodes);
                if random.one_in(2) {
                    damage(random, &mut line);
                }
                line
            })
            .collect();
        // The entries that the proxies append.
        let proxies = match settings.hops {
            Some(hops) => hops - 1,
            None => random.weighted(&[6, 3, 2, 1]),
        };
        let mut nodes = vec![Node::Address(client)];
        nodes.extend((0..proxies).map(|_| Node::Address(proxy(random))));
        if settings.shape == Shape::Single {
            lines = vec![list(random, Shape::Single, &nodes[..1])];
        } else if random.one_in(2) || lines.is_empty() {
            lines.push(list(random, settings.shape, &nodes));
        } else {
            let last = lines.last_mut().unwrap();
            last.extend_from_slice(random.pick(&[b",".as_slice(), b", ", b" ,"]));
            last.extend(list(random, settings.shape, &nodes));
        }
        let mut client = Some(client);
        // In one of four cases the lines of the proxies are damaged or replaced.
        if random.one_in(4) {
            client = None;
            match random.index(4) {
                0 => lines.clear(),
                1 => {
                    let node = any_node(random);
                    lines.push(list(random, settings.shape, &[node]));
                }
                2 => lines = vec![long_list(random, settings.shape)],
                _ => damage(random, lines.last_mut().unwrap()),
            }
        }
        Self { lines, client }
    }
}

#[derive(Clone, Copy, Debug)]
enum Node {
    Address(IpAddr),
    Other(&'static str),
}

fn proxy(random: &mut Random) -> IpAddr {
    match random.index(3) {
        0 => IpAddr::V6(Ipv6Addr::from_bits((0xfd << 120) | u128::from(random.next()))),
        _ => Ipv4Addr::from_bits((10 << 24) | (random.next() as u32 & 0x00ff_ffff)).into(),
    }
}

/// An address that is not trusted, in its canonical form.
fn untrusted(random: &mut Random) -> IpAddr {
    match random.index(3) {
        0 => IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(random.next()))),
        1 => Ipv4Addr::from_bits((192 << 24) | (168 << 16) | (random.next() as u32 & 0xffff)).into(),
        _ => Ipv4Addr::from_bits((203 << 24) | (random.next() as u32 & 0x00ff_ffff)).into(),
    }
}

fn any_node(random: &mut Random) -> Node {
    match random.weighted(&[4, 4, 2, 1]) {
        0 => Node::Address(untrusted(random)),
        1 => Node::Address(proxy(random)),
        2 => Node::Other(random.pick(&["unknown", "UNKNOWN", "_hidden", "_a.b-c", "_x:_y"])),
        _ => Node::Other(random.pick(&[
            "",
            "_",
            "unix:",
            "localhost",
            "203.0.113",
            "203.0.113.07",
            "1.2.3.4:123456",
            "fe80::1%eth0",
            "[::1",
            "::1]",
            "[1.2.3.4]",
            "<script>",
            "0x7f000001",
            "1.2.3.4/8",
            "é",
        ])),
    }
}

/// About as many entries as the extractor reads at most.
fn long_list(random: &mut Random, shape: Shape) -> Vec<u8> {
    let nodes: Vec<_> = (0..60 + random.index(10)).map(|_| Node::Address(proxy(random))).collect();
    list(random, shape, &nodes)
}

/// A list of the nodes, with separators and whitespace as HTTP allows.
fn list(random: &mut Random, shape: Shape, nodes: &[Node]) -> Vec<u8> {
    let mut line = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        if index > 0 {
            line.extend_from_slice(random.pick(&[b",".as_slice(), b", ", b", ", b" ,\t", b",,", b", , "]));
        }
        match shape {
            Shape::Forwarded => line.extend(element(random, node)),
            Shape::List | Shape::Single => line.extend_from_slice(spelling(random, node, true).as_bytes()),
        }
    }
    line
}

/// An element of the `Forwarded` header (RFC 7239).
fn element(random: &mut Random, node: &Node) -> Vec<u8> {
    let text = spelling(random, node, false);
    let token = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) && !text.is_empty();
    let value = if token && random.one_in(2) {
        text
    } else {
        let mut quoted = String::from("\"");
        for character in text.chars() {
            if random.one_in(12) || matches!(character, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
        quoted + "\""
    };
    let mut pairs = vec![format!("{}={value}", random.pick(&["for", "For", "FOR"]))];
    for other in ["by=10.0.0.1", "proto=https", "host=\"a,b;for=1.2.3.4\"", "ext=\"\\\"\"", ""] {
        if random.one_in(4) {
            pairs.insert(random.index(pairs.len() + 1), other.to_owned());
        }
    }
    pairs.join(random.pick(&[";", ";", "; ", " ;"])).into_bytes()
}

/// One of the spellings of a node. `bare` allows IPv6 addresses without brackets.
fn spelling(random: &mut Random, node: &Node, bare: bool) -> String {
    let address = match node {
        Node::Other(text) => return (*text).to_owned(),
        Node::Address(address) => *address,
    };
    let port = random.pick(&["", "", "", ":1", ":51234", ":65535"]);
    match address {
        IpAddr::V4(address) => match random.index(12) {
            0 if bare => format!("::ffff:{address}"),
            1 => format!("[::ffff:{address}]{port}"),
            2 if translated(address) => format!("[64:ff9b::{address}]{port}"),
            _ => format!("{address}{port}"),
        },
        IpAddr::V6(address) if bare && random.one_in(2) => match random.index(3) {
            0 => address.to_string().to_uppercase(),
            1 => address.segments().map(|group| format!("{group:04x}")).join(":"),
            _ => address.to_string(),
        },
        IpAddr::V6(address) => format!("[{address}]{port}"),
    }
}
