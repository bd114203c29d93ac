//! Rate limiting middleware for [tower], axum and gRPC: one limit for all instances of a service through Redis, or for
//! one process in memory; exact in every window, weighted by what each request costs, and safe when its store fails.
//!
//! # Why
//!
//! | what limiters often do | what this crate does |
//! | --- | --- |
//! | Each process counts for itself: ten instances admit ten times the limit. | All instances count in one Redis, with [`RedisStore`]. One process counts in memory, with [`MemoryStore`]. |
//! | Windows begin on the minute, and buckets hold a burst: around a boundary, up to twice the limit passes. | No window has more than the limit, wherever it begins. Of the [same requests](guide::comparison#the-same-requests-to-other-limiters) under a limit of 10, this log admitted none above the limit, and others up to 9, as long as no clock was set. |
//! | Each request counts as one, and a search as much as a page view. | A request pays [what it costs](RateLimitLayer::with_cost), under all of its limits at once or under none. |
//! | Retry-After is rounded down, or is the end of a window. | Retry-After is when the same request fits, rounded up. A client that obeys it is not denied again, unless another request was first. |
//! | Requests wait for the store, or all fail with it. | No check waits longer than its deadline, 50 ms by default. Then [the route decides](#store-failures): open, closed or local. Limits hold again within a second after Redis is back. |
//! | Each check is a round trip, and a flood of denied requests reaches the store. | Checks share round trips: 207 000 exact decisions a second through a Redis that shares two cores with its client. Denials come from memory, 6.0 million a second on one core. The layer costs an allowed request 419 ns. |
//!
//! [Guarantees](guide::guarantees) names the tests of each promise, [performance](guide::performance) the benchmarks
//! and dates of the figures, and [comparison](guide::comparison) what other crates do.
//!
#![doc = include_str!("../docs/boundary.svg")]
//!
//! # Quick start
//!
//! A [`Policy`] sets what a client may spend, a [`KeyExtractor`] finds the client in the request, a [store] counts, and
//! [`RateLimitLayer`] applies them:
//!
//! ```no_run
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use tollgate::{MemoryStore, PeerIp, Policy, RateLimitLayer};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Or `RedisStore::open("redis://127.0.0.1:6379")?`.
//!     let store = MemoryStore::new();
//!     let policy = Policy::per_minute("per-client", 5)?;
//!     let limit = RateLimitLayer::new(store, policy, PeerIp::new());
//!     let routes = Router::new().route("/watch", get(|| async { "watching\n" }));
//!     let app = routes.layer(limit);
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     // Tells the layer the address of each client.
//!     let service = app.into_make_service_with_connect_info::<SocketAddr>();
//!     axum::serve(listener, service).await?;
//!     Ok(())
//! }
//! ```
//!
//! The first five requests of a client get 200. The sixth gets 429, and the handler does not run:
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! ratelimit-policy: "per-client";q=5;w=60
//! ratelimit: "per-client";r=0;t=60
//! retry-after: 60
//! ```
//!
//! **Behind a proxy or a load balancer**, every connection has the proxy's address, so [`PeerIp`] puts all clients
//! under one limit. Use [`ClientIp`] there: see [behind a proxy](guide::behind_a_proxy).
//!
//! # The choices
//!
//! The first two are yours. The others have a default that suits most services.
//!
//! | choice | default | to choose from |
//! | --- | --- | --- |
//! | where the counts are | | [`MemoryStore`] for one process; [`RedisStore`] for all instances: one server, sentinels or a cluster |
//! | who pays | | [`PeerIp`], the address of the connection; [`ClientIp`], [`ApiKey`], [`HeaderKey`], [`ExtensionKey`], a closure, a tuple of them |
//! | what a request costs | 1 | [`RateLimitLayer::with_cost`], [`RateLimitLayer::route`]; [afterwards](guide::holds) |
//! | how it is counted | [`SlidingWindowLog`](Algorithm::SlidingWindowLog), which is exact | [three others, and a log with a resolution](#algorithms), for less memory or another shape |
//! | what a request gets while the store is away | it passes: [`RateLimitLayer::fail_open`] | [`fail_closed`](RateLimitLayer::fail_closed), [`fail_local`](RateLimitLayer::fail_local), also for a route |
//! | what a client sees | 429 as problem+json, the RateLimit fields of the IETF draft | [other fields](HeaderStyle), [your own response](RateLimitLayer::with_rejection), [gRPC](guide::what_clients_see) |
//!
//! A wrong setting is an error where it is written: [`RateLimitLayer::validated`] returns the first mistake of a layer.
//!
//! # Which of these do I need?
//!
//! | you want to | use |
//! | --- | --- |
//! | refuse requests above a rate | [`RateLimitLayer`], as above |
//! | let some requests cost more than others | [`RateLimitLayer::with_cost`], [`RateLimitLayer::route`] |
//! | choose limits by the request, or by the plan of a customer | [`PolicySource`](policy::PolicySource), [plans](guide::plans) |
//! | let requests wait for their turn instead of refusing them | [`RateLimitLayer::wait_up_to`] |
//! | stay within the quota of an API that you call | [`ThrottleLayer`], [`Limiter::acquire`] |
//! | charge what is known only afterwards, such as tokens | [`RateLimitLayer::with_settlement`], [`Limiter::hold`] |
//! | limit how many requests run at the same time | [`Policy::concurrent`] |
//! | bill by the day, month or year | [`Policy::calendar`] |
//! | check keys so often that Redis is the limit | [`Policy::with_lease`] |
//! | change limits while the service runs | [`limits`] |
//! | limit a service of tonic | feature `grpc`: [gRPC](guide::what_clients_see#grpc) |
//! | see what a limit would refuse before it does | [`Policy::with_shadow`] |
//! | limit jobs, or a service of actix-web, Lambda or pingora | [`Limiter::check`], [without tower](guide::without_tower) |
//! | answer refused requests in your own words | [`RateLimitLayer::with_rejection`], [`Denial`](rejection::Denial) |
//! | leave another limiter | [migrating](guide::migrating) |
//!
//! * **Before it goes live:** [roll a limit out](guide::rollout) as a shadow,
//!   [choose what clients see](guide::what_clients_see), [set up Redis and metrics](guide::operations), and keep
//!   [on call](guide::on_call) at hand.
//! * **To decide:** [algorithms](guide::algorithms), [guarantees and their tests](guide::guarantees),
//!   [figures and their dates](guide::performance), [other crates](guide::comparison).
//! * **To copy:** whole programs, in [`recipes`], also [tests of your own
//!   handlers](recipes#tests-of-your-own-handlers), which move the time, and the layer's type [in a
//!   signature](RateLimitLayer#naming-the-type). The [`guide`] lists all pages.
//!
//! # Algorithms
//!
//! | [`Algorithm`] | admits | state per key | Retry-After | use it |
//! | --- | --- | --- | --- | --- |
//! | [`SlidingWindowLog`](Algorithm::SlidingWindowLog) | never more than the limit in any window | a record per request in the window | exact | by default |
//! | the same with a [resolution](Policy::with_resolution) | the same; units become available up to one resolution late | about `window / resolution` records, whatever the limit | exact | for large limits |
//! | [`SlidingWindowCounter`](Algorithm::SlidingWindowCounter) | an estimate that assumes even traffic in the previous window | two counts | estimated | for very many keys |
//! | [`FixedWindow`](Algorithm::FixedWindow) | up to twice the limit around a boundary | one count | the end of the window | for the least memory; [calendar](Calendar) quotas count in such windows too |
//! | [`TokenBucket`](Algorithm::TokenBucket) | up to burst + limit in one window, at a steady rate | one number | exact | to shape traffic |
//!
//! # Store failures
//!
//! A check has a deadline, 50 ms by default, which covers dialling, waiting and the script. The first connection of a
//! process has a longer deadline, 250 ms; [`Limiter::ready`] opens that connection before the first request. If the
//! deadline passes, or Redis refuses the check, restarts, is full, read-only or loading, there is no verdict, and the
//! [`FailurePolicy`] of the route or the layer decides:
//!
//! * **open** (the default) forwards the request without RateLimit fields;
//! * **closed** responds with 503 and Retry-After;
//! * **local** counts in the process, against the instance's share of the limit. [`Limiter::with_local_fallback`]
//!   states how much is admitted in total.
//!
//! Choose closed or local where an unlimited request does more harm than a refused one, such as logins and anything
//! that spends money. If the process itself sends more checks than Redis answers in time, the excess is refused under
//! every failure policy ([`ErrorKind::Overloaded`]).
//!
//! A check whose result is unknown is never sent again, so the check may have been charged once, but never twice. After
//! a few failures in a row a [breaker](failure::BreakerSettings) opens: checks fail at once without I/O, and the
//! breaker probes the store at intervals. Connections are reopened in the background, at most 400 ms apart, so limits
//! hold again within a second after Redis is back, on a cluster within 1.5 seconds. After refused logins it takes up to
//! five seconds, and behind TLS until Redis has computed the handshake:
//! [connections with TLS](guide::when_redis_fails#connections-with-tls).
//!
//! # Feature flags
//!
//! All features are additive. The last column counts the packages that a feature adds (November 2026, Linux): a default
//! feature adds them to a build without features, which has 22, and any other feature to a default build, which has 77.
//!
//! | feature | what it adds | packages |
//! | --- | --- | --- |
//! | `axum` (default) | route settings and keys by `MatchedPath`, peer addresses from `ConnectInfo`. Without it, routes are compared with the plain path, and addresses come from a `SocketAddr` or `IpAddr` extension. | 24 |
//! | `redis` (default) | [`RedisStore`] on one server, behind sentinels or on a cluster, with its own pool or with your bb8-redis pool. `redis` and `bb8_redis` are re-exported. | 38 |
//! | `tracing` (default) | the reports of a limiter become `tracing` events where a subscriber listens, and [`observe::Tracing`] adds denials, recoveries and breaker changes | 2 |
//! | `grpc` | [`GrpcStatus`], rejections that gRPC clients understand | 0 |
//! | `metrics` | [`observe::Metrics`], counters, histograms and gauges through the `metrics` facade | 3 |
//! | `plans` | `plans::Plans`, policies that an asynchronous look-up finds, behind a cache | 2 |
//! | `reqwest` | [`ThrottleLayer`] around a client of reqwest | 10, mostly reqwest's own |
//! | `serde` | [`limits`] from a file in any format of serde, and limits that are replaced while the service runs; `Serialize` for [`Decision`] | 3 |
//! | `watch` | `LiveLimits::watch`, limits that follow a file; includes `serde` | 11 |
//! | `tls` | `rediss://` by rustls, with a cryptography provider; your own roots and client certificates. See [`RedisStore`] for logins, databases and unix sockets in URLs. | 12, one of them compiles C |
//! | `test-util` | [`ManualClock`] and [`clock::TokioClock`], for tests that set the time instead of sleeping, and [`store::FailingStore`], for tests of a store that gives no verdict. The package `tollgate-testing` has the suite for stores of your own. | 0 |
//! | `uuid` | a [`Key`] from a `Uuid` | 1 |
//! | `zones` | the zones of a [`Calendar`] by name, such as `Europe/Berlin` | 3 |
//!
//! # The path of a request
//!
//! ```text
//! RateLimitLayer ─▶ RateLimit::call
//!                      │  request head: route settings, key, cost, policies
//!                      ▼
//!                   Limiter::check ── deadline ── Store: memory, or deny cache ─▶ breaker ─▶ batch ─▶ one EVALSHA
//!                      │                             └─ no verdict ─▶ failure policy: open, closed or local
//!                      ▼
//!                   Decision
//!    allowed ─▶ the inner service, Decision in the request's extensions ─▶ its response + RateLimit fields
//!    denied  ─▶ 429 (503 if closed) as problem+json, a gRPC status, or your own response; the inner service never runs
//! ```
//!
//! 1. A request is charged once per layer that it passes, before the inner service is called. A later failure is not
//!    refunded. A layer that [settles](RateLimitLayer::with_settlement) holds the cost instead, and charges what the
//!    response says. Under [`Policy::concurrent`] a request holds a slot until its response body has ended.
//! 2. All charges of a request, one per policy and key, are committed together or none is. A denied request changes no
//!    count, unless the policy [counts denials](Policy::with_denials_counted) or [bans](Policy::ban_after).
//! 3. Clones of a layer, and layers derived from a layer, share one budget, because they share the [`Limiter`], the
//!    policies and the keys. Processes whose [`RedisStore`] has the same prefix share one budget too.
//! 4. A request without a key is refused, unless the layer sets another [`MissingKey`]: with 401 without a credential,
//!    with 500 if no layer has inserted the value of an [`ExtensionKey`], and otherwise with 400.
//! 5. A cost above the limit can never pass. For a fixed cost, [`RateLimitLayer::validated`] returns a [`ConfigError`].
//!    A request whose computed cost is above the limit is refused with 400 and no Retry-After.
//!
//! # Observability
//!
//! A limiter reports by default when it does not enforce limits and when its setup looks wrong. The reports are
//! `tracing` warnings or lines on stderr, see [`observe`]. [`Limiter::without_notices`] switches the reports off.
//!
//! [`Limiter::with_observer`] adds an [`Observer`](observe::Observer) of every decision, failure, batch and breaker
//! change: [`observe::Tracing`] logs these events, [`observe::Metrics`] counts them, or write your own observer. No
//! observer receives a key. Without an observer, observation costs a check one branch.
//!
//! # Key privacy
//!
//! No log, metric or response contains a key. A [`RedisStore`] receives a hash of each key, keyed with your secret
//! (`RedisStoreBuilder::key_secret`). Without a secret the hash is unkeyed, and observers are warned. With `plain_keys`
//! the keys are stored as text.
//!
//! # Order of layers
//!
//! From the outermost: panics and tracing, **CORS**, timeouts, *limits by address*, **authentication**, *limits by
//! user*, the handlers.
//!
//! * CORS is outside the limits: rejections then have CORS fields, so that scripts can read them, and preflights cost
//!   nothing. [`HeaderStyle::names`] lists the fields to expose.
//! * Authentication is outside the limits by user, because it finds the user ([`ExtensionKey`]). Limits by address are
//!   outside authentication, so that guessing is limited.
//! * Load shedding is outside the limits, so that a shed request is not charged. Concurrency limits are inside.
//!
//! In a `ServiceBuilder` the first layer is the outermost. With `Router::layer` the **last** layer is the outermost,
//! and covers only the routes that were added before that layer; `route_layer` skips requests that match no route.
//! Behind a proxy, [`PeerIp`] sees the proxy alone; [`ClientIp`] reads the header in which trusted proxies send the
//! client's address.
//!
//! # Cancel safety
//!
//! A [`Limiter`]'s future that was never polled has charged nothing. The layer sends the check to a store that answers
//! at once, such as [`MemoryStore`], when the service is called, and to Redis when the response future is first polled.
//! If the response future is dropped while it waits for the store, for example because the client has disconnected or
//! an outer timeout has passed, the check may have been charged without a response. The check is never charged twice,
//! and the inner service is not called. If the response future is dropped later, the charge stays.
//!
//! [tower]: https://docs.rs/tower
// A link to an item of a disabled feature leads to the section on features.
#![cfg_attr(not(feature = "redis"), doc = "[`RedisStore`]: #feature-flags")]
#![cfg_attr(not(feature = "grpc"), doc = "[`GrpcStatus`]: #feature-flags")]
#![cfg_attr(not(feature = "metrics"), doc = "[`observe::Metrics`]: #feature-flags")]
#![cfg_attr(not(feature = "serde"), doc = "[`limits`]: #feature-flags")]
#![cfg_attr(not(feature = "tracing"), doc = "[`observe::Tracing`]: #feature-flags")]
#![cfg_attr(not(feature = "test-util"), doc = "[`ManualClock`]: #feature-flags")]
#![cfg_attr(not(feature = "test-util"), doc = "[`clock::TokioClock`]: #feature-flags")]
#![cfg_attr(not(feature = "test-util"), doc = "[`store::FailingStore`]: #feature-flags")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
mod breaker;
mod calls;
mod check;
pub mod clock;
mod cost;
pub mod decision;
mod error;
pub mod failure;
mod fallback;
// Compiled for documentation only. The doctests of the guide need these features.
#[cfg(all(
    doc,
    any(
        not(doctest),
        all(
            feature = "axum",
            feature = "grpc",
            feature = "metrics",
            feature = "plans",
            feature = "redis",
            feature = "test-util",
            feature = "watch",
            feature = "zones"
        )
    )
))]
pub mod guide;
pub mod headers;
mod hold;
pub mod key;
pub mod limiter;
#[cfg(feature = "serde")]
pub mod limits;
pub mod middleware;
pub mod observe;
#[cfg(feature = "plans")]
pub mod plans;
pub mod policy;
// Compiled for documentation only. The doctests of the recipes need these features.
#[cfg(all(doc, any(not(doctest), all(feature = "axum", feature = "plans", feature = "redis", feature = "test-util"))))]
pub mod recipes;
pub mod rejection;
mod runtime;
pub mod store;
pub mod throttle;
mod verdict;

#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use self::runtime::world;
// Inlined, so that the front page of the documentation describes each item.
#[cfg(feature = "test-util")]
#[doc(inline)]
pub use self::clock::ManualClock;
#[cfg(feature = "serde")]
#[doc(inline)]
pub use self::limits::LiveLimits;
#[cfg(feature = "grpc")]
#[doc(inline)]
pub use self::rejection::GrpcStatus;
#[cfg(feature = "redis")]
#[doc(inline)]
pub use self::store::RedisStore;
#[doc(inline)]
pub use self::{
    check::Check,
    decision::Decision,
    error::{ConfigError, Error, ErrorKind},
    failure::FailurePolicy,
    headers::HeaderStyle,
    key::{
        ApiKey, ClientIp, ExtensionKey, GlobalKey, HeaderKey, Key, KeyExtractor, MatchedPathKey, MissingKey, PeerIp,
    },
    limiter::Limiter,
    middleware::{RateLimitLayer, Route},
    policy::{Algorithm, Calendar, Policy},
    rejection::ProblemJson,
    store::MemoryStore,
    throttle::ThrottleLayer,
};
#[cfg(feature = "redis")]
pub use bb8_redis;
pub use http;
#[cfg(feature = "redis")]
pub use redis;

#[cfg(all(doctest, feature = "axum", feature = "redis", feature = "watch"))]
#[doc = include_str!("../README.md")]
struct Readme;
