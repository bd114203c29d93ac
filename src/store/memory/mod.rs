//! The embedded store: counts in the process, without a server.
//!
//! `store` has the public type, `table` the shards, `judge` the judgement of a check, `counted` its two steps for one
//! count, `hold_counts` a count with its open holds, `holds` these holds, `shard` the counts under one lock, `entries`
//! their list and index, `fullness` what a full store does.

mod counted;
mod entries;
mod hold_counts;
mod judge;
mod shard;
mod store;
mod table;

pub use self::{store::MemoryStore, table::WhenFull};
