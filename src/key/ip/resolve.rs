//! The walk from the connection's other end to the client.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header::FORWARDED, request::Parts};

use super::{
    client::{ClientIp, Source},
    element::Elements,
    forwarded,
    network::Address,
    node::{self, Unusable},
    peer::peer,
};
use crate::key::{KeyError, header::single_line};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl ClientIp {
    /// Finds the client's address: unmapped, but whole and without regard to what is exempt or denied.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if it cannot be told: `MalformedHeader`, `MissingHeader`, `RepeatedHeader`, `OpaqueClient`,
    /// `TooManyHops`, `ChainTooShort` or `NoPeerAddress`.
    pub fn resolve(&self, parts: &Parts) -> Result<IpAddr, KeyError> {
        Ok(self.locate(parts)?.canonical)
    }

    pub(super) fn locate(&self, parts: &Parts) -> Result<Address, KeyError> {
        let peer = peer(&parts.extensions).map(|address| self.network.read(address));
        if !peer.map_or(self.trust_unix_peer, |peer| self.trusted.holds(peer.canonical)) {
            return peer.ok_or(KeyError::NoPeerAddress);
        }
        match &self.source {
            Source::Peer => peer.ok_or(KeyError::NoPeerAddress),
            Source::Single(name) => self.single(name, &parts.headers, peer),
            Source::ForwardedFor => {
                let elements = Elements::new(&parts.headers, &FORWARDED_FOR);
                self.walk(&FORWARDED_FOR, elements.map(|element| node::parse(element?, true)), peer)
            }
            Source::Forwarded => {
                let elements = forwarded::last_elements(&parts.headers, Self::MAX_HOPS + 1)
                    .map_err(|_| KeyError::MalformedHeader(FORWARDED))?;
                let nodes = elements.iter().rev().map(|element| match element {
                    Some(value) => node::parse(&value.unescaped(), false),
                    None => Err(Unusable::Opaque),
                });
                self.walk(&FORWARDED, nodes, peer)
            }
        }
    }

    fn single(&self, name: &HeaderName, headers: &HeaderMap, peer: Option<Address>) -> Result<Address, KeyError> {
        let Some(value) = single_line(headers, name)? else { return self.missing(name, peer) };
        match node::parse(value.as_bytes().trim_ascii(), true) {
            Ok(address) => Ok(self.network.read(address)),
            Err(_) => Err(KeyError::MalformedHeader(name.clone())),
        }
    }

    /// `nodes` are those of the header, from the right.
    fn walk(
        &self,
        name: &HeaderName,
        nodes: impl Iterator<Item = Result<IpAddr, Unusable>>,
        peer: Option<Address>,
    ) -> Result<Address, KeyError> {
        // Who has written the next node.
        let mut proxy = peer;
        let mut walked = 0;
        for node in nodes {
            walked += 1;
            if walked > Self::MAX_HOPS {
                return Err(KeyError::TooManyHops(name.clone()));
            }
            let address = node.map(|address| self.network.read(address));
            if self.hops.is_some_and(|hops| walked < hops) {
                // Counted, not read: what is here only says which way the request came.
                proxy = address.ok();
                continue;
            }
            let address = match (address, proxy) {
                (Ok(address), _) => address,
                (Err(Unusable::Opaque), Some(proxy)) if self.proxy_if_opaque => return Ok(proxy),
                (Err(Unusable::Opaque), _) => return Err(KeyError::OpaqueClient(name.clone())),
                (Err(Unusable::Malformed), _) => return Err(KeyError::MalformedHeader(name.clone())),
            };
            if self.hops.is_some() || !self.trusted.holds(address.canonical) {
                return Ok(address);
            }
            proxy = Some(address);
        }
        match proxy {
            _ if walked == 0 => self.missing(name, peer),
            // All are trusted: the leftmost.
            Some(address) if self.hops.is_none() => Ok(address),
            _ => Err(KeyError::ChainTooShort(name.clone())),
        }
    }

    fn missing(&self, name: &HeaderName, peer: Option<Address>) -> Result<Address, KeyError> {
        if self.peer_if_missing {
            return peer.ok_or(KeyError::NoPeerAddress);
        }
        Err(KeyError::MissingHeader(name.clone()))
    }
}
