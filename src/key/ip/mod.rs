//! Keys from addresses: the connection's other end, or the client that trusted proxies tell of.

mod client;
mod element;
mod forwarded;
mod network;
mod node;
mod peer;
mod places;
mod prefixes;
mod resolve;
mod translated;

pub use self::{
    client::ClientIp,
    peer::PeerIp,
    prefixes::{IntoPrefixes, PrefixList},
};
