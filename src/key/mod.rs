//! Who is charged: the [`Key`], and the extractors that find the key in a request.
//!
//! A limit of 60 requests per minute needs an answer to "60 requests of whom?". The key is that answer: each key has a
//! separate budget under each policy. A [`KeyExtractor`] finds the key in a request's head.
//!
//! | extractor | charges |
//! | --- | --- |
//! | [`PeerIp`] | the address of the connection's peer |
//! | [`ClientIp`] | the address of the client behind proxies that you trust |
//! | [`ApiKey`] | the caller's API key or bearer token, stored as a hash |
//! | [`ExtensionKey`] | a value that an outer layer has inserted, such as the authenticated user |
//! | [`HeaderKey`] | the value of a header that your proxy sets |
//! | [`MatchedPathKey`] | the matched route, all clients together |
//! | [`GlobalKey`] | all requests together |
//! | a tuple of extractors | the combination of their keys, for example one budget per client and route |
//! | a closure `Fn(&Parts) -> ..` | the key that the closure returns, see [`KeyExtractor`] |
//!
//! # Rules
//!
//! * **Charge what the server knows.** A value that a client can write at will, such as the path, the query or an
//!   unchecked header, gives the client a new budget for each spelling.
//! * **A request without a key is refused**, with 401 if the key is a credential and with 400 otherwise, unless the
//!   layer or the extractor sets another [`MissingKey`]. A request whose key is present but unusable is always refused.
//! * **An extractor that returns `None` exempts** the request from the policies of its key.
//! * **Keys are injective**: two different subjects never share a key, whatever bytes they contain.
//! * **Keys are private**: `Debug` does not show a key, and no log, metric or response contains a key.
//!
//! # Examples
//!
//! The default: one budget per client address.
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let per_client = Policy::per_minute("per-client", 60)?;
//! let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_client, PeerIp::new());
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```
//!
//! Customised: authenticated users have one budget per user and route, anonymous requests share one budget per address.
//!
//! ```
//! use http::request::Parts;
//! use tollgate::{
//!     ClientIp, Key, KeyExtractor, Limiter, MatchedPathKey, MemoryStore, Policy, RateLimitLayer, key::KeyError,
//! };
//!
//! /// Inserted by authentication.
//! #[derive(Clone)]
//! struct User(u64);
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let client = ClientIp::behind_load_balancer(["10.0.0.0/8"])?;
//! let user_or_client = move |parts: &Parts| -> Result<Option<Key>, KeyError> {
//!     match parts.extensions.get::<User>() {
//!         Some(user) => Ok(Some(Key::join([Key::from("user"), Key::from(user.0)]))),
//!         None => client.extract(parts),
//!     }
//! };
//! let policy = Policy::per_minute("per-user-and-route", 60)?;
//! let limiter = Limiter::new(MemoryStore::new());
//! let limit = RateLimitLayer::new(limiter, policy, (user_or_client, MatchedPathKey));
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```

mod convert;
mod error;
mod extractor;
mod header;
mod ip;
pub(crate) mod partition;
pub(crate) mod path;
mod subject;

pub(crate) use self::error::KeyFault;
#[doc(hidden)]
pub use self::extractor::KeyOrigin;
pub use self::{
    error::KeyError,
    extractor::{KeyExtractor, MissingKey, from_fn},
    header::{ApiKey, HeaderKey},
    ip::{ClientIp, PeerIp, PrefixList},
    path::{ExtensionKey, GlobalKey, MatchedPathKey},
    subject::Key,
};
