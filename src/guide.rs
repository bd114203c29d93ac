//! The guide: one page for each subject that spans several modules.
//!
//! | page | content |
//! | --- | --- |
//! | [`algorithms`] | what each algorithm admits, and what it costs in Redis |
//! | [`behind_a_proxy`] | which key extractor finds the client's address behind which proxy |
//! | [`what_clients_see`] | header fields, bodies and statuses, and what clients do with them |
//! | [`holds`] | costs that are known only afterwards, such as the tokens of a model |
//! | [`concurrency`] | at most N requests at once, in all instances; costs that the response decides |
//! | [`model_gateway`] | a whole program: requests, tokens in and out, and streams at once; a proxy with a budget |
//! | [`waiting`] | jobs and clients that wait for the quota of another service, and requests that wait for a handler |
//! | [`plans`] | policies that are looked up by account, in the background |
//! | [`calendar`] | quotas by the day, week, month or year, in a zone |
//! | [`leases`] | keys that are checked so often that Redis is the limit |
//! | [`on_call`] | what each alert means, and what to do about it |
//! | [`when_redis_fails`] | each cause of an outage: its effect, its duration and its test |
//! | [`config_file`] | policies, routes and costs from TOML, JSON or YAML |
//! | [`rollout`] | shadow policies, what they would deny, keys near a limit |
//! | [`operations`] | readiness, notices, metrics, key privacy |
//! | [`performance`] | figures, and when they were measured |
//! | [`comparison`] | other rate limiters for tower |
//! | [`other_limiters`] | the words of other limiters, and what differs |
//! | [`migrating`] | from tower_governor, from a script of your own, and from Express: the changes of a program |
//! | [`without_tower`] | actix-web, Lambda and pingora |
//! | [`guarantees`] | each guarantee and its tests |
//! | [`stability`] | what a release may change, and what may run side by side during an update |
//!
//! Programs for common tasks are in [`recipes`](crate::recipes).

// Each page of `docs/` ends with link definitions that name other pages by file. The definitions before a page replace
// them with rustdoc paths, because the first definition of a link counts. rustdoc checks these paths.

#[doc = "[boundary]: #plot"]
#[doc = "[calendar]: calendar"]
#[doc = "[fill]: #memory"]
#[doc = "[holds]: holds"]
#[doc = "[lease]: leases"]
#[doc = "[performance]: performance"]
#[doc = ""]
#[doc = include_str!("../docs/algorithms.md")]
#[doc = "## Plot"]
#[doc = include_str!("../docs/boundary.svg")]
#[doc = "## Memory"]
#[doc = include_str!("../docs/fill.svg")]
pub mod algorithms {}

#[doc = "[optional]: what_clients_see#optional-fields"]
#[doc = "[tests]: guarantees#behind-a-proxy"]
#[doc = ""]
#[doc = include_str!("../docs/behind-a-proxy.md")]
pub mod behind_a_proxy {}

#[doc = "[envoy-speed]: #envoys-rate-limit-services"]
#[doc = "[others]: other_limiters"]
#[doc = "[performance]: performance"]
#[doc = ""]
#[doc = include_str!("../docs/comparison.md")]
pub mod comparison {}

#[doc = "[by hand]: operations#bans-charges-and-refunds"]
#[doc = "[calendar]: calendar#zones"]
#[doc = "[changes]: config_file#changes-while-the-service-runs"]
#[doc = "[comparison]: comparison"]
#[doc = "[failed logins]: crate::recipes#five-failed-logins-then-an-hour"]
#[doc = "[file]: config_file"]
#[doc = "[holds]: holds"]
#[doc = "[only failures]: crate::recipes#only-failed-requests-count"]
#[doc = "[plans]: plans"]
#[doc = "[proxy]: behind_a_proxy"]
#[doc = "[rollout]: rollout"]
#[doc = "[tower]: migrating#from-tower_governor"]
#[doc = ""]
#[doc = include_str!("../docs/other-limiters.md")]
pub mod other_limiters {}

#[doc = "[algorithms]: algorithms"]
#[doc = "[express]: other_limiters#express-rate-limit-express-slow-down"]
#[doc = "[failures]: when_redis_fails"]
#[doc = "[flexible]: other_limiters#rate-limiter-flexible"]
#[doc = "[others]: other_limiters"]
#[doc = "[performance]: performance"]
#[doc = "[rollout]: rollout"]
#[doc = ""]
#[doc = include_str!("../docs/migrating.md")]
pub mod migrating {}

// Its programs need other frameworks: `tests/frameworks/` compiles them.
#[cfg(not(doctest))]
#[doc = "[proxy]: behind_a_proxy"]
#[doc = ""]
#[doc = include_str!("../docs/without-tower.md")]
pub mod without_tower {}

#[doc = "[sentinels]: when_redis_fails#sentinels"]
#[doc = "[soak]: #picture"]
#[doc = ""]
#[doc = include_str!("../docs/guarantees.md")]
#[doc = "## Picture"]
#[doc = include_str!("../docs/soak.svg")]
pub mod guarantees {}

#[doc = "[bans]: crate::recipes#bans-and-clients-behind-one-address"]
#[doc = "[gateway]: model_gateway"]
#[doc = "[guard]: concurrency#work-that-goes-on-without-its-client"]
#[doc = "[leases]: leases"]
#[doc = "[longest]: concurrency#a-client-that-never-reads"]
#[doc = "[response]: concurrency#costs-that-the-response-decides"]
#[doc = "[tests]: guarantees#holds"]
#[doc = ""]
#[doc = include_str!("../docs/holds.md")]
pub mod holds {}

#[doc = "[plans]: plans#blocked-and-unlimited-plans"]
#[doc = ""]
#[doc = include_str!("../docs/config-file.md")]
pub mod config_file {}

#[doc = "[by hand]: operations#counts-by-hand"]
#[doc = "[order]: behind_a_proxy#order-of-layers"]
#[doc = ""]
#[doc = include_str!("../docs/model-gateway.md")]
pub mod model_gateway {}

#[doc = "[algorithms]: algorithms"]
#[doc = "[bans]: crate::recipes#bans-and-clients-behind-one-address"]
#[doc = "[block]: leases#how-it-works"]
#[doc = "[failures]: when_redis_fails"]
#[doc = "[holds]: holds"]
#[doc = "[lease]: leases"]
#[doc = "[rollout]: rollout"]
#[doc = "[limits]: config_file"]
#[doc = "[on-call]: on_call"]
#[doc = "[performance]: performance"]
#[doc = ""]
#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = "[bans]: operations#bans-charges-and-refunds"]
#[doc = "[by hand]: operations#counts-by-hand"]
#[doc = "[fallback]: when_redis_fails#local-fallback"]
#[doc = "[foreign]: when_redis_fails#foreign-values"]
#[doc = "[holds]: holds"]
#[doc = "[holds by hand]: operations#a-client-complains-about-429"]
#[doc = "[lease]: leases"]
#[doc = "[limits]: config_file"]
#[doc = "[metrics]: operations#metrics"]
#[doc = "[notices]: operations#notices"]
#[doc = "[privacy]: operations#key-privacy"]
#[doc = "[proxy]: behind_a_proxy"]
#[doc = "[readiness]: operations#readiness"]
#[doc = "[refused]: operations#who-is-refused"]
#[doc = "[rotation]: operations#replacing-a-password-or-a-certificate"]
#[doc = "[settings]: operations#redis-settings"]
#[doc = "[sizing]: operations#sizing-redis"]
#[doc = ""]
#[doc = include_str!("../docs/on-call.md")]
pub mod on_call {}

#[doc = "[away]: holds#when-the-store-is-away"]
#[doc = "[fallback]: when_redis_fails#local-fallback"]
#[doc = "[holds]: holds"]
#[doc = "[metrics]: operations#metrics"]
#[doc = "[shards]: algorithms#one-key-on-several-nodes-of-a-cluster"]
#[doc = ""]
#[doc = include_str!("../docs/leases.md")]
pub mod leases {}

#[doc = include_str!("../docs/calendar.md")]
pub mod calendar {}

#[doc = "[holds]: holds"]
#[doc = "[picture]: #picture"]
#[doc = "[throttle]: crate::throttle"]
#[doc = "[uploads]: concurrency"]
#[doc = ""]
#[doc = include_str!("../docs/waiting.md")]
#[doc = "## Picture"]
#[doc = include_str!("../docs/outbound.svg")]
pub mod waiting {}

#[doc = "[algorithms]: algorithms"]
#[doc = "[chart]: #chart"]
#[doc = "[failures]: when_redis_fails#an-outage-over-time"]
#[doc = "[hot]: leases#figures"]
#[doc = "[load]: #a-server-under-load"]
#[doc = "[load-chart]: #chart-of-a-server-under-load"]
#[doc = "[sizing]: when_redis_fails#deadline-breaker-and-batches-by-round-trip"]
#[doc = "[waiting]: waiting#the-queue"]
#[doc = ""]
#[doc = include_str!("../docs/performance.md")]
#[doc = "## Chart"]
#[doc = include_str!("../docs/redis.svg")]
#[doc = "## Chart of a server under load"]
#[doc = include_str!("../docs/load.svg")]
pub mod performance {}

#[doc = "[missing]: crate::MissingKey"]
#[doc = "[operations]: operations"]
#[doc = ""]
#[doc = include_str!("../docs/plans.md")]
pub mod plans {}

#[doc = "[file]: config_file#changes-while-the-service-runs"]
#[doc = ""]
#[doc = include_str!("../docs/rollout.md")]
pub mod rollout {}

#[doc = "[failures]: crate::recipes#only-failed-requests-count"]
#[doc = "[grpc]: what_clients_see#grpc"]
#[doc = "[holds]: holds"]
#[doc = "[outbound]: waiting#at-most-so-many-calls-at-once"]
#[doc = "[runtimes]: holds#runtimes"]
#[doc = ""]
#[doc = include_str!("../docs/concurrency.md")]
pub mod concurrency {}

#[doc = "[keys]: operations#redis-keys"]
#[doc = "[leases]: leases#rolling-it-out"]
#[doc = "[metrics]: operations#metrics"]
#[doc = ""]
#[doc = include_str!("../docs/stability.md")]
pub mod stability {}

#[doc = "[by hand]: operations#counts-by-hand"]
#[doc = "[latency]: #latency"]
#[doc = "[operations]: operations#notices"]
#[doc = "[outage]: #picture"]
#[doc = "[proof]: guarantees#local-fallback"]
#[doc = "[tests]: guarantees#when-redis-fails"]
#[doc = ""]
#[doc = include_str!("../docs/when-redis-fails.md")]
#[doc = "## Picture"]
#[doc = include_str!("../docs/outage.svg")]
#[doc = "## Latency"]
#[doc = include_str!("../docs/network.svg")]
pub mod when_redis_fails {}

#[doc = "[holds]: holds"]
#[doc = "[longest]: concurrency#a-client-that-never-reads"]
#[doc = "[tests]: guarantees#what-clients-see"]
#[doc = ""]
#[doc = include_str!("../docs/what-clients-see.md")]
pub mod what_clients_see {}
