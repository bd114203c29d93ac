//! The walk from the connection's peer to the client.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header::FORWARDED, request::Parts};

use super::{
    forwarded,
    grouping::{Address, Grouping},
    node::{self, NodeError},
    peer::peer,
    prefixes::PrefixList,
    x_forwarded_for::Elements,
};
use crate::key::{
    error::{KeyError, KeyFault},
    header::single_line,
};

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
                self.walk(&X_FORWARDED_FOR, elements.map(|element| node::parse(element?, true)), peer)
            }
            AddressSource::Forwarded => {
                let elements = forwarded::last_elements(&parts.headers, Self::MAX_HOPS + 1)
                    .map_err(|_| KeyError(KeyFault::MalformedHeader(FORWARDED)))?;
                let nodes = elements.iter().rev().map(|element| match element {
                    Some(value) => node::parse(&value.unescaped(), false),
                    None => Err(NodeError::Opaque),
                });
                self.walk(&FORWARDED, nodes, peer)
            }
        }
    }

    fn read_single(&self, name: &HeaderName, headers: &HeaderMap, peer: Option<Address>) -> Result<Address, KeyError> {
        let Some(value) = single_line(headers, name)? else { return self.missing(name, peer) };
        match node::parse(value.as_bytes().trim_ascii(), true) {
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
