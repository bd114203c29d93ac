//! The guide: one page for each subject that spans several modules.
//!
//! | page | content |
//! | --- | --- |
//! | [`algorithms`] | what each algorithm admits, and what it costs in Redis |
//! | [`behind_a_proxy`] | which key extractor finds the client's address behind which proxy |
//! | [`what_clients_see`] | header fields, bodies and statuses, and what clients do with them |
//! | [`holds`] | costs that are known only afterwards, such as the tokens of a model |
//! | [`uploads`] | at most N requests at once, in all instances; costs that the response decides |
//! | [`model_gateway`] | a whole program: requests, tokens in and out, and streams at once |
//! | [`outbound`] | jobs and clients that wait for the quota of another service |
//! | [`plans_from_a_database`] | policies that are looked up by account, in the background |
//! | [`one_hot_tenant`] | one key that is checked a hundred thousand times a second |
//! | [`when_redis_fails`] | each cause of an outage: its effect, its duration and its test |
//! | [`limits_in_a_file`] | policies, routes and costs from TOML, JSON or YAML |
//! | [`rolling_out_a_limit`] | shadow policies, what they would deny, keys near a limit |
//! | [`operations`] | readiness, notices, metrics, key privacy |
//! | [`performance`] | figures, and when they were measured |
//! | [`comparison`] | other rate limiters for tower |
//! | [`guarantees`] | each guarantee and its tests |
//!
//! Programs for common tasks are in [`recipes`](crate::recipes).

// Each page of `docs/` ends with link definitions that name other pages by file. The definitions before a page replace
// them with rustdoc paths, because the first definition of a link counts. rustdoc checks these paths.

#[doc = "[boundary]: #plot"]
#[doc = "[holds]: holds"]
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

#[doc = "[gateway]: model_gateway"]
#[doc = "[response]: uploads#costs-that-the-response-decides"]
#[doc = ""]
#[doc = include_str!("../docs/holds.md")]
pub mod holds {}

#[doc = include_str!("../docs/limits-in-a-file.md")]
pub mod limits_in_a_file {}

#[doc = "[holds]: holds"]
#[doc = "[order]: behind_a_proxy#order-of-layers"]
#[doc = ""]
#[doc = include_str!("../docs/model-gateway.md")]
pub mod model_gateway {}

#[doc = "[algorithms]: algorithms"]
#[doc = "[failures]: when_redis_fails"]
#[doc = "[holds]: holds"]
#[doc = "[lease]: one_hot_tenant"]
#[doc = "[rollout]: rolling_out_a_limit"]
#[doc = "[limits]: limits_in_a_file"]
#[doc = ""]
#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = include_str!("../docs/one-hot-tenant.md")]
pub mod one_hot_tenant {}

#[doc = "[holds]: holds"]
#[doc = "[picture]: #picture"]
#[doc = "[uploads]: uploads"]
#[doc = ""]
#[doc = include_str!("../docs/outbound.md")]
#[doc = "## Picture"]
#[doc = include_str!("../docs/outbound.svg")]
pub mod outbound {}

#[doc = "[algorithms]: algorithms"]
#[doc = "[chart]: #chart"]
#[doc = "[hot]: one_hot_tenant#figures"]
#[doc = "[sizing]: when_redis_fails#deadline-breaker-and-batches-by-round-trip"]
#[doc = ""]
#[doc = include_str!("../docs/performance.md")]
#[doc = "## Chart"]
#[doc = include_str!("../docs/redis.svg")]
pub mod performance {}

#[doc = "[missing]: crate::MissingKey"]
#[doc = "[operations]: operations"]
#[doc = ""]
#[doc = include_str!("../docs/plans-from-a-database.md")]
pub mod plans_from_a_database {}

#[doc = include_str!("../docs/rolling-out-a-limit.md")]
pub mod rolling_out_a_limit {}

#[doc = "[holds]: holds"]
#[doc = "[outbound]: outbound#at-most-so-many-calls-at-once"]
#[doc = ""]
#[doc = include_str!("../docs/uploads.md")]
pub mod uploads {}

#[doc = "[operations]: operations#notices"]
#[doc = ""]
#[doc = include_str!("../docs/when-redis-fails.md")]
pub mod when_redis_fails {}

#[doc = "[holds]: holds"]
#[doc = ""]
#[doc = include_str!("../docs/what-clients-see.md")]
pub mod what_clients_see {}
