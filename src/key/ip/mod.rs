//! Keys from addresses: the connection's peer, or the client behind trusted proxies.

mod client;
mod client_keys;
mod exceptions;
mod forwarded;
mod grouping;
mod peer;
mod prefixes;
mod presets;
mod resolver;

pub use self::{client::ClientIp, peer::PeerIp, prefixes::PrefixList};
