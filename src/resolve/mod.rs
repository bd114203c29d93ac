//! Asynchronous keys: a layer that asks an async closure about each request before the rate limit.
//!
//! A [`KeyExtractor`](crate::KeyExtractor) is synchronous. If the key is in a session store or behind a token
//! introspection, it has to be found before the limit. In axum a middleware does that. [`resolve`] does it for every
//! tower stack: it awaits a closure and inserts what the closure finds into the request's extensions, where
//! [`ExtensionKey`](crate::ExtensionKey) finds the key, and handlers find the value.
//!
//! # Rules
//!
//! 1. The closure gets the request's head and returns a future that does not borrow from it: copy what the future
//!    needs.
//! 2. `Some(value)` is inserted, and replaces an extension of the same type. With `None`, nothing is inserted.
//! 3. An error, and no answer within the timeout (5 s by default), insert nothing either. They are reported, at most
//!    once a minute, and counted by observers. The request goes on.
//! 4. A request without the extension has no key, so [`MissingKey`](crate::MissingKey) decides. By default, the
//!    response is 500; set another for anonymous requests. With [`MissingKey::Exempt`](crate::MissingKey::Exempt), the
//!    limit does not apply while the resolution fails; use
//!    [`MissingKey::ShareOneKey`](crate::MissingKey::ShareOneKey), or a second limit by address, where that
//!    matters.
//! 5. Each request calls the closure. Keep answers in a cache in the closure, and put a limit by address outside of
//!    this layer if the closure is expensive.
//!
//! # Examples
//!
//! hyper, or any other tower stack over HTTP:
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response, request::Parts};
//! use tollgate::{ExtensionKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer, resolve::resolve};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! #[derive(Clone)]
//! struct UserId(u64);
//!
//! impl From<&UserId> for Key {
//!     fn from(user: &UserId) -> Key {
//!         Key::from(user.0)
//!     }
//! }
//!
//! /// In a service: a query to the session store.
//! async fn user_of(session: String) -> Result<Option<UserId>, std::io::Error> {
//!     Ok((session == "valid").then_some(UserId(17)))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let find = |parts: &Parts| {
//!     let session = parts.headers.get("x-session").and_then(|value| value.to_str().ok()).unwrap_or_default();
//!     user_of(session.to_owned())
//! };
//! let per_user = Policy::per_minute("per-user", 1)?;
//! let service = ServiceBuilder::new()
//!     .layer(resolve(find)) // outside of the limit
//!     .layer(RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_user, ExtensionKey::<UserId>::new()))
//!     .service(service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Bytes::from("hello"))) }));
//! // A server of hyper takes it as `hyper_util::service::TowerToHyperService::new(service)`.
//!
//! for status in [200, 429] {
//!     let request = Request::get("/").header("x-session", "valid").body(())?;
//!     assert_eq!(service.clone().oneshot(request).await?.status(), status);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! axum. With `Router::layer`, the last layer is the outermost:
//!
//! ```
//! use std::time::Duration;
//!
//! use axum::{Router, routing::get};
//! use http::request::Parts;
//! use tollgate::{ExtensionKey, Limiter, MemoryStore, MissingKey, Policy, RateLimitLayer, resolve::resolve};
//!
//! # async fn user_of(_: Option<http::HeaderValue>) -> Option<u64> { None }
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let per_user = Policy::per_minute("per-user", 60)?;
//! let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_user, ExtensionKey::<u64>::new())
//!     .on_missing_key(MissingKey::ShareOneKey); // anonymous requests
//! let find = |parts: &Parts| user_of(parts.headers.get("cookie").cloned());
//! let app: Router = Router::new()
//!     .route("/", get(|| async {}))
//!     .layer(limit)
//!     .layer(resolve(find).with_timeout(Duration::from_millis(200)));
//! # Ok(())
//! # }
//! ```

mod future;
mod layer;
mod service;
mod value;

pub use self::{
    future::ResolveFuture,
    layer::{ResolveLayer, resolve},
    service::Resolve,
    value::IntoResolved,
};
