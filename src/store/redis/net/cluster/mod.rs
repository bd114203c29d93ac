//! The masters of a Redis Cluster: which node has which slot, and a pool for each.

pub(crate) mod nodes;
pub(crate) mod redirection;
pub(crate) mod seeds;
mod slot_map;
