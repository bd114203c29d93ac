//! Rate limiting that is shared, exact, weighted and honest, as [tower] middleware.
//!
//! [tower]: https://docs.rs/tower
#![cfg_attr(docsrs, feature(doc_cfg))]

mod algorithm;
mod check;
mod clock;
mod config;
mod cost;
mod decision;
mod error;
mod failure;
mod future;
pub mod headers;
mod key;
mod layer;
mod limiter;
mod policies;
mod policy;
mod rejection;
mod route;
mod service;
pub mod store;

#[cfg(feature = "test-util")]
pub use self::clock::ManualClock;
#[cfg(feature = "redis")]
pub use self::store::{RedisStore, RedisStoreBuilder};
pub use self::{
    check::{Charge, Check},
    clock::{Clock, SystemClock},
    cost::{Cost, IntoCost},
    decision::{Decision, PolicyDecision, Source},
    error::{ConfigError, Error, ErrorKind},
    failure::FailurePolicy,
    future::ResponseFuture,
    headers::HeaderStyle,
    key::{
        ApiKey, ExtensionKey, GlobalKey, HeaderKey, IntoExtraction, Key, KeyError, KeyExtractor, MatchedPathKey, PeerIp,
    },
    layer::{MissingKey, RateLimitLayer},
    limiter::{CheckFuture, Limiter},
    policies::{Policies, PolicySource},
    policy::{Algorithm, Policy},
    rejection::{Denial, ProblemJson, Reason, Rejection},
    route::Route,
    service::RateLimit,
    store::{Answer, MemoryStore, Outcome, Store, Verdict},
};
#[cfg(feature = "redis")]
pub use bb8_redis;
pub use http;
#[cfg(feature = "redis")]
pub use redis;
