//! Rate limiting that is shared, exact, weighted and honest, as [tower] middleware.
//!
//! A limit that every instance of a service counts for itself is as many limits as there are instances. A window that
//! begins on the minute lets twice the limit through around the minute. A search that costs as much as a hundred page
//! views is not one request. And a limiter that waits for its database takes the service down with it.
//!
//! With `tollgate`, requests pay their cost at the gate, all of it or nothing. The toll book is a Redis that every
//! instance reads ([`RedisStore`]), or the process's own memory ([`MemoryStore`]), with the same decisions. What a
//! request may spend is a [`Policy`]; who pays is found by a [`KeyExtractor`]; [`RateLimitLayer`] does the rest.
//!
//! # Quick start
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, body::Body, extract::connect_info::MockConnectInfo, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
//! use tower::ServiceExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(MemoryStore::new()); // or RedisStore::connect("redis://127.0.0.1:6379")?
//! let limit = RateLimitLayer::new(limiter, Policy::per_minute("per-client", 2)?, PeerIp::default());
//! let app = Router::new()
//!     .route("/watch", get(|| async { "watching" }))
//!     .layer(limit)
//!     // A server says who calls: `app.into_make_service_with_connect_info::<SocketAddr>()`.
//!     .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 4711))));
//!
//! let watch = || app.clone().oneshot(Request::get("/watch").body(Body::empty()).unwrap());
//! let first = watch().await?;
//! assert_eq!(first.status(), StatusCode::OK);
//! assert_eq!(first.headers()["ratelimit-policy"], r#""per-client";q=2;w=60"#);
//! assert_eq!(first.headers()["ratelimit"], r#""per-client";r=1;t=60"#);
//!
//! assert_eq!(watch().await?.status(), StatusCode::OK);
//!
//! let third = watch().await?;
//! assert_eq!(third.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(third.headers()["retry-after"], "60");
//! # Ok(())
//! # }
//! ```
//!
//! Prices per route, and the two ways to set them: [`RateLimitLayer`] and [`RateLimitLayer::route`]. How to write the
//! layer's type in a signature: [`RateLimitLayer`], "Naming the type". Jobs and outbound clients call a [`Limiter`]
//! directly. Programs for common tasks, such as plans, logins, several budgets for one request and tests of your own,
//! are in [`recipes`]. The [`guide`] covers algorithms, proxies, response fields, outages of Redis and operations.
//!
//! # The path of a request
//!
//! ```text
//! RateLimitLayer ─▶ RateLimit::call
//!                      │  its head: route settings, key, cost, policies
//!                      ▼
//!                   Limiter::check ── deadline ── Store: memory, or deny cache ─▶ breaker ─▶ batch ─▶ one EVALSHA
//!                      │                             └─ no verdict ─▶ failure policy: open, closed or local
//!                      ▼
//!                   Decision
//!    allowed ─▶ the inner service, Decision in the request's extensions ─▶ its response + RateLimit fields
//!    denied  ─▶ 429 (503 if closed) as problem+json, a gRPC status, or a response of yours; the inner service never runs
//! ```
//!
//! 1. A request is charged once per layer that it passes, before the inner service is called. What happens afterwards
//!    gives nothing back.
//! 2. All charges of a request, one per policy and key, are paid together or not at all. A denied request changes no
//!    count, unless the policy [counts rejections](Policy::with_count_rejected) or [bans](Policy::ban_after).
//! 3. Layers that are clones of, or derived from, one another share one budget, because they share the [`Limiter`],
//!    the policies and the keys. So do processes whose [`RedisStore`] has the same prefix.
//! 4. A request without a key is refused with 400, unless the layer says otherwise ([`MissingKey`]).
//! 5. A cost above the limit can never pass: a fixed one is a [`ConfigError`] where it is written, a computed one is
//!    refused with 400 and no Retry-After.
//!
//! # Algorithms
//!
//! | [`Algorithm`] | lets through | keeps per key | Retry-After | choose it |
//! | --- | --- | --- | --- | --- |
//! | [`SlidingWindowLog`](Algorithm::SlidingWindowLog) | never more than the limit in any window | a record per request in the window | exact | by default |
//! | the same with a [resolution](Policy::with_resolution) | the same; units come back up to one resolution late | about `window / resolution` records, whatever the limit | exact | for large limits |
//! | [`SlidingWindowCounter`](Algorithm::SlidingWindowCounter) | an estimate that assumes even traffic in the previous window | two counts | of the estimate | for very many keys |
//! | [`FixedWindow`](Algorithm::FixedWindow) | up to twice the limit around a boundary | one count | the window's end | for calendar quotas |
//! | [`TokenBucket`](Algorithm::TokenBucket) | up to burst + limit in one window, at a steady rate | one number | exact | to shape traffic |
//!
//! # When the store cannot answer
//!
//! A check has a deadline, 50 ms by default, around everything: dialling, waiting, the script. Only the first connection of
//! a process has a longer one, 250 ms ([`Limiter::ready`] makes it before the first request). When it passes, or Redis
//! refuses, restarts, is full, read-only or loading, there is no verdict, and the [`FailurePolicy`] of the route or
//! the layer decides: **open** (the default) lets the request pass without RateLimit fields, **closed** answers 503
//! with Retry-After, **local** judges by the instance's share of the limit, counted in the process
//! ([`Limiter::with_local`] tells what is then admitted in all). Choose closed or local where an unlimited request does
//! more harm than a refused one: logins, anything that spends money. No policy lets pass what a flood of this process
//! itself has made late ([`ErrorKind::Overloaded`]). A check whose fate is unknown is never sent again; it may have been charged once, never twice.
//! After a few failures in a row a [`Breaker`](failure::Breaker) answers at once, without asking; from time to time it lets one check
//! through. Connections are made again in the background, at most 400 ms apart, so limits hold within a second after
//! Redis is back.
//!
//! # Seeing it
//!
//! A limiter that does not limit says so by itself, as `tracing` warnings or on stderr, and says what looks wrong about its
//! setup: see [`observe`](observe#what-a-limiter-says-by-itself). [`Limiter::quiet`] switches that off.
//!
//! [`Limiter::with_observer`] adds an [`Observer`](observe::Observer), which hears of every decision, failure, batch and change
//! of the breaker: [`observe::Tracing`] logs, [`observe::Metrics`] counts, one of your own does as it likes. None of them
//! gets a key. Without one a check pays one branch.
//!
//! # Who is charged stays secret
//!
//! No log, metric or response holds a key. A [`RedisStore`] gets it as a hash, under a secret of yours or, with a warning
//! to observers, under none (`RedisStoreBuilder::key_secret`), or as it is if you say so (`plain_keys`).
//!
//! # Where the layer goes
//!
//! Outermost first: panics and tracing, **CORS**, timeouts, *limits by address*, **authentication**, *limits by user*,
//! the handlers.
//!
//! * CORS outside: refusals then carry CORS fields, so that scripts can read them, and preflights cost nothing. What to
//!   expose is told by [`HeaderStyle::names`].
//! * Authentication outside the limits by user, for it finds the user ([`ExtensionKey`]); limits by address outside
//!   authentication, so that guessing is limited.
//! * Load shedding outside, so that a request which is shed is not charged; concurrency limits inside.
//!
//! In a `ServiceBuilder` the first layer is the outermost. With `Router::layer` the **last** one is, and only routes
//! that were added before are limited; `route_layer` leaves out requests that match no route. Behind a proxy
//! [`PeerIp`] sees the proxy alone; [`ClientIp`] reads the header in which proxies that you trust tell the client.
//!
//! # Cancel safety
//!
//! A [`Limiter`]'s future that was never polled has charged nothing. The layer asks a store that answers at once, like
//! [`MemoryStore`], when the service is called, and Redis when the response is first polled. Dropped while it waits for the store (the client hung up, an
//! outer timeout), the check may have been charged without a response; it is never charged twice, and the inner service
//! is not called. Dropped later, the request stays paid.
//!
//! # Feature flags
//!
//! Features only add.
//!
//! * `axum` (default): route settings and keys by `MatchedPath`, peer addresses from `ConnectInfo`. Without it, routes
//!   are told by the plain path and addresses come from a `SocketAddr` or `IpAddr` extension.
//! * `redis` (default): [`RedisStore`], on a pool of its own or on a bb8-redis pool that you have already. `redis` and
//!   `bb8_redis` are re-exported.
//! * `grpc`: [`GrpcStatus`], refusals that gRPC clients understand.
//! * `metrics`: [`observe::Metrics`], counters, histograms and a gauge through the `metrics` facade.
//! * `tracing` (default): what a limiter says by itself becomes `tracing` events where a subscriber listens; and
//!   [`observe::Tracing`], which adds denials, recoveries and changes of the breaker.
//! * `tls`: `rediss://` by rustls, with a cryptography provider; roots and client certificates of your own. See
//!   [`RedisStore`] for what else a URL can say: logins, databases, unix sockets.
//! * `sentinel`: `RedisStoreBuilder::connect_sentinel`, a master that sentinels name.
//! * `cluster`: `RedisStoreBuilder::connect_cluster`, a Redis Cluster.
//! * `test-util`: [`ManualClock`] and [`TokioClock`](clock::TokioClock), for tests that move time instead of sleeping, and
//!   [`FailingStore`](store::FailingStore), for tests of what happens without a verdict.
//! * `uuid`: a [`Key`] from a `Uuid`.
//!
//! [tower]: https://docs.rs/tower
// Where the items are not compiled, their links lead to the feature that does.
#![cfg_attr(not(feature = "redis"), doc = "[`RedisStore`]: #feature-flags")]
#![cfg_attr(not(feature = "grpc"), doc = "[`GrpcStatus`]: #feature-flags")]
#![cfg_attr(not(feature = "metrics"), doc = "[`observe::Metrics`]: #feature-flags")]
#![cfg_attr(not(feature = "tracing"), doc = "[`observe::Tracing`]: #feature-flags")]
#![cfg_attr(not(feature = "test-util"), doc = "[`ManualClock`]: #feature-flags")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
mod breaker;
mod check;
pub mod clock;
mod cost;
pub mod decision;
mod error;
pub mod failure;
mod fallback;
// Documentation only. The programs in it need the three features.
#[cfg(all(doc, any(not(doctest), all(feature = "axum", feature = "redis", feature = "test-util"))))]
pub mod guide;
pub mod headers;
pub mod key;
pub mod limiter;
pub mod middleware;
pub mod observe;
pub mod policy;
// Documentation only. The programs in it need the three features.
#[cfg(all(doc, any(not(doctest), all(feature = "axum", feature = "redis", feature = "test-util"))))]
pub mod recipes;
pub mod rejection;
mod runtime;
pub mod store;
mod verdict;

#[cfg(feature = "test-util")]
pub use self::clock::ManualClock;
#[cfg(feature = "grpc")]
pub use self::rejection::GrpcStatus;
#[cfg(feature = "redis")]
pub use self::store::RedisStore;
pub use self::{
    check::Check,
    cost::Cost,
    decision::Decision,
    error::{ConfigError, Error, ErrorKind},
    failure::FailurePolicy,
    headers::HeaderStyle,
    key::{
        ApiKey, ClientIp, ExtensionKey, GlobalKey, HeaderKey, Key, KeyExtractor, MatchedPathKey, MissingKey, PeerIp,
    },
    limiter::Limiter,
    middleware::{RateLimitLayer, Route},
    policy::{Algorithm, Policy},
    rejection::ProblemJson,
    store::MemoryStore,
};
#[cfg(feature = "redis")]
pub use bb8_redis;
pub use http;
#[cfg(feature = "redis")]
pub use redis;

#[cfg(all(doctest, feature = "axum", feature = "redis"))]
#[doc = include_str!("../README.md")]
struct Readme;
