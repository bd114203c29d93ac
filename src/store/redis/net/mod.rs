//! How Redis is reached: addresses, connections, pools and the nodes of a cluster. This module does not depend on
//! checks.

pub(crate) mod address;
mod backoff;
pub(crate) mod cluster;
mod connection;
mod dialer;
mod dials;
pub(crate) mod endpoint;
pub(crate) mod error;
mod first_dial;
mod followed;
mod liveness;
pub(crate) mod login;
mod master_search;
pub(crate) mod pool;
mod redact;
pub(crate) mod routed;
mod server_pool;
pub(crate) mod silence;
pub(crate) mod slot;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod url;
mod wire;
