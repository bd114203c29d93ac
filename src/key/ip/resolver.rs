//! The walk from the connection's peer to the client, over the elements of `X-Forwarded-For`, which are read lazily
//! from the right.

use std::net::IpAddr;

use http::header::{FORWARDED, ValueIter};
use http::{HeaderMap, HeaderName, HeaderValue, request::Parts};

use super::forwarded::{self, NodeError};
use super::grouping::{Address, Grouping};
use super::{peer::peer, prefixes::PrefixList};
use crate::key::error::{KeyError, KeyFault};
use crate::key::header::single_line;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Finds the client's address in a request.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    pub(super) source: AddressSource,
    pub(super) trusted: PrefixList,
    /// The place of the client's address from the right. `None`: the walk ends at the first address that is not
    /// trusted.
    pub(super) hops: Option<usize>,
    pub(super) grouping: Grouping,
    pub(super) peer_if_missing: bool,
    pub(super) proxy_if_opaque: bool,
    pub(super) trust_unix_peer: bool,
}

/// The source of the client's address.
#[derive(Clone, Debug)]
pub enum AddressSource {
    Forwarded,
    Peer,
    /// A header with one address.
    Single(HeaderName),
    XForwardedFor,
}

impl Resolver {
    /// The most addresses in a walk. No deployment has that many proxies in a row.
    pub(super) const MAX_HOPS: usize = 64;

    pub(super) fn new(source: AddressSource, trusted: PrefixList) -> Self {
        Self {
            source,
            trusted,
            hops: None,
            grouping: Grouping::default(),
            peer_if_missing: false,
            proxy_if_opaque: false,
            trust_unix_peer: false,
        }
    }

    /// Finds the client's address.
    pub(super) fn resolve(&self, parts: &Parts) -> Result<Address, KeyError> {
        let peer = peer(&parts.extensions).map(|address| self.grouping.read(address));
        if !peer.map_or(self.trust_unix_peer, |peer| self.trusted.holds(peer.canonical)) {
            return peer.ok_or(KeyError(KeyFault::NoPeerAddress));
        }
        match &self.source {
            AddressSource::Peer => peer.ok_or(KeyError(KeyFault::NoPeerAddress)),
            AddressSource::Single(name) => self.read_single(name, &parts.headers, peer),
            AddressSource::XForwardedFor => {
                let elements = Elements::new(&parts.headers, &X_FORWARDED_FOR);
                self.walk(&X_FORWARDED_FOR, elements.map(|element| forwarded::parse(element?, true)), peer)
            }
            AddressSource::Forwarded => {
                let elements = forwarded::last_elements(&parts.headers, Self::MAX_HOPS + 1)
                    .map_err(|_| KeyError(KeyFault::MalformedHeader(FORWARDED)))?;
                let nodes = elements.iter().rev().map(|element| match element {
                    Some(value) => forwarded::parse(&value.unescaped(), false),
                    None => Err(NodeError::Opaque),
                });
                self.walk(&FORWARDED, nodes, peer)
            }
        }
    }

    fn read_single(&self, name: &HeaderName, headers: &HeaderMap, peer: Option<Address>) -> Result<Address, KeyError> {
        let Some(value) = single_line(headers, name)? else { return self.missing(name, peer) };
        match forwarded::parse(value.as_bytes().trim_ascii(), true) {
            Ok(address) => Ok(self.grouping.read(address)),
            Err(_) => Err(KeyError(KeyFault::MalformedHeader(name.clone()))),
        }
    }

    /// Walks over the nodes of the header `name`, given from the right.
    fn walk(
        &self,
        name: &HeaderName,
        nodes: impl Iterator<Item = Result<IpAddr, NodeError>>,
        peer: Option<Address>,
    ) -> Result<Address, KeyError> {
        // The proxy that has written the node of the next iteration.
        let mut proxy = peer;
        let mut walked = 0;
        for node in nodes {
            walked += 1;
            if walked > Self::MAX_HOPS {
                return Err(KeyError(KeyFault::TooManyHops(name.clone())));
            }
            let address = node.map(|address| self.grouping.read(address));
            if self.hops.is_some_and(|hops| walked < hops) {
                // Nodes to the right of the chosen place are only counted, so they need not be addresses.
                proxy = address.ok();
                continue;
            }
            let address = match (address, proxy) {
                (Ok(address), _) => address,
                (Err(NodeError::Opaque), Some(proxy)) if self.proxy_if_opaque => return Ok(proxy),
                (Err(NodeError::Opaque), _) => return Err(KeyError(KeyFault::OpaqueClient(name.clone()))),
                (Err(NodeError::Malformed), _) => return Err(KeyError(KeyFault::MalformedHeader(name.clone()))),
            };
            if self.hops.is_some() || !self.trusted.holds(address.canonical) {
                return Ok(address);
            }
            proxy = Some(address);
        }
        match proxy {
            _ if walked == 0 => self.missing(name, peer),
            // All nodes are trusted, so the leftmost node is the client.
            Some(address) if self.hops.is_none() => Ok(address),
            _ => Err(KeyError(KeyFault::ChainTooShort(name.clone()))),
        }
    }

    /// The result for a request of a trusted peer without the header `name`.
    fn missing(&self, name: &HeaderName, peer: Option<Address>) -> Result<Address, KeyError> {
        if self.peer_if_missing {
            return peer.ok_or(KeyError(KeyFault::NoPeerAddress));
        }
        Err(KeyError(KeyFault::MissingHeader(name.clone())))
    }
}

/// Longest element, in bytes; no valid node is longer. The bound limits the search for a comma in text that a client
/// has written.
const MAX_ELEMENT: usize = 256;

/// Iterates over all lines of the header as one list, from the end of the list. Skips empty elements (RFC 9110, section
/// 5.6.1.2).
struct Elements<'a> {
    /// The unread lines; `None` after a malformed element.
    lines: Option<ValueIter<'a, HeaderValue>>,
    /// The unread rest of the current line.
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(super) fn new(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        Self { lines: Some(headers.get_all(name).iter()), rest: &[] }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], NodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.rest = without_blanks(self.rest);
            if !self.rest.is_empty() {
                break;
            }
            self.rest = self.lines.as_mut()?.next_back()?.as_bytes();
        }
        let window = self.rest.len().saturating_sub(MAX_ELEMENT);
        let start = match self.rest[window..].iter().rposition(|&byte| byte == b',') {
            Some(comma) => window + comma + 1,
            None if window == 0 => 0,
            None => {
                // The start of this element is not known, so no element on its left can be separated.
                *self = Self { lines: None, rest: &[] };
                return Some(Err(NodeError::Malformed));
            }
        };
        let (rest, element) = self.rest.split_at(start);
        self.rest = rest;
        Some(Ok(element.trim_ascii()))
    }
}

/// Removes commas and white space from the end.
fn without_blanks(mut text: &[u8]) -> &[u8] {
    // Removes 64 bytes at once, which the compiler vectorises, because a header may be a megabyte of commas.
    while let Some((rest, stride)) = text.split_last_chunk::<64>() {
        if !stride.iter().fold(true, |blank, &byte| blank & is_blank(byte)) {
            break;
        }
        text = rest;
    }
    let end = text.iter().rposition(|&byte| !is_blank(byte)).map_or(0, |last| last + 1);
    &text[..end]
}

fn is_blank(byte: u8) -> bool {
    byte == b',' || byte == b' ' || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(lines: &[&str]) -> Vec<Result<String, NodeError>> {
        let name = HeaderName::from_static("x-forwarded-for");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, line.parse().unwrap());
        }
        Elements::new(&headers, &name).map(|item| item.map(|item| String::from_utf8(item.to_vec()).unwrap())).collect()
    }

    #[test]
    fn all_lines_are_one_list_from_its_end() {
        let of = |items: &[&str]| items.iter().map(|item| Ok(item.to_string())).collect::<Vec<_>>();
        assert_eq!(elements(&[]), of(&[]));
        assert_eq!(elements(&["", " , ,", &",".repeat(1_000)]), of(&[]));
        assert_eq!(elements(&["a"]), of(&["a"]));
        assert_eq!(elements(&["a,b , c", "", " d\t,, "]), of(&["d", "c", "b", "a"]));
        assert_eq!(elements(&["a b", &format!("c{}", " ,".repeat(500))]), of(&["c", "a b"]));
    }

    #[test]
    fn an_element_without_an_end_is_malformed_and_the_last_one() {
        let long = "x".repeat(MAX_ELEMENT + 1);
        assert_eq!(elements(&["a", &format!("{long}, b")]), [Ok("b".to_owned()), Err(NodeError::Malformed)]);
        let longest = "x".repeat(MAX_ELEMENT);
        assert_eq!(elements(&[&longest]), [Ok(longest)]);
    }
}
