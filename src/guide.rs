//! The guide: one page for each subject that spans several modules.
//!
//! | page | content |
//! | --- | --- |
//! | [`algorithms`] | what each algorithm admits, and what it costs in Redis |
//! | [`behind_a_proxy`] | which key extractor finds the client's address behind which proxy |
//! | [`what_clients_see`] | header fields, bodies and statuses, and what clients do with them |
//! | [`outbound`] | jobs and clients that wait for the quota of another service |
//! | [`when_redis_fails`] | each cause of an outage: its effect, its duration and its test |
//! | [`operations`] | readiness, notices, metrics, key privacy |
//! | [`performance`] | figures, and when they were measured |
//! | [`comparison`] | other rate limiters for tower |
//! | [`guarantees`] | each guarantee and its tests |
//!
//! Programs for common tasks are in [`recipes`](crate::recipes).

// Each page of `docs/` ends with link definitions that name other pages by file. The definitions before a page replace
// them with rustdoc paths, because the first definition of a link counts. rustdoc checks these paths.

#[doc = "[boundary]: #plot"]
#[doc = "[performance]: performance"]
#[doc = ""]
#[doc = include_str!("../docs/algorithms.md")]
#[doc = "## Plot"]
#[doc = include_str!("../docs/boundary.svg")]
pub mod algorithms {}

#[doc = include_str!("../docs/behind-a-proxy.md")]
pub mod behind_a_proxy {}

#[doc = "[performance]: performance"]
#[doc = "[recipes]: crate::recipes#migration-from-tower_governor"]
#[doc = ""]
#[doc = include_str!("../docs/comparison.md")]
pub mod comparison {}

#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

#[doc = "[algorithms]: algorithms"]
#[doc = "[failures]: when_redis_fails"]
#[doc = ""]
#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = "[picture]: #picture"]
#[doc = ""]
#[doc = include_str!("../docs/outbound.md")]
#[doc = "## Picture"]
#[doc = include_str!("../docs/outbound.svg")]
pub mod outbound {}

#[doc = "[algorithms]: algorithms"]
#[doc = "[chart]: #chart"]
#[doc = "[sizing]: when_redis_fails#deadline-breaker-and-batches-by-round-trip"]
#[doc = ""]
#[doc = include_str!("../docs/performance.md")]
#[doc = "## Chart"]
#[doc = include_str!("../docs/redis.svg")]
pub mod performance {}

#[doc = "[operations]: operations#notices"]
#[doc = ""]
#[doc = include_str!("../docs/when-redis-fails.md")]
pub mod when_redis_fails {}

#[doc = include_str!("../docs/what-clients-see.md")]
pub mod what_clients_see {}
