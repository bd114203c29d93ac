//! Keys from addresses: the connection's other end, or the client that trusted proxies tell of.

mod client;
mod embedded_ipv4;
mod forwarded;
mod grouping;
mod header_sources;
mod node;
mod peer;
mod prefixes;
mod presets;
mod resolver;
mod x_forwarded_for;

pub use self::{
    client::ClientIp,
    peer::PeerIp,
    prefixes::{IntoPrefixes, PrefixList},
};
