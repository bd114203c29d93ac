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
//! * **A request without a key is refused**, unless the layer sets another [`MissingKey`]: with 401 if the key is a
//!   credential, with 500 if no layer has inserted the value of an [`ExtensionKey`], and otherwise with 400.
//! * **A request whose key cannot be used is always refused**: with 400 if it is malformed, and with 403 if it is an
//!   address that [`ClientIp::deny`] lists.
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
//! let limit = RateLimitLayer::new(
//!     Limiter::new(MemoryStore::new()),
//!     per_client,
//!     PeerIp::new(),
//! );
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
//!     ClientIp, Key, KeyExtractor, Limiter, MatchedPathKey, MemoryStore, Policy,
//!     RateLimitLayer, key::KeyError,
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
//!         Some(user) => {
//!             Ok(Some(Key::join([Key::from("user"), Key::from(user.0)])))
//!         }
//!         None => client.extract(parts),
//!     }
//! };
//! let policy = Policy::per_minute("per-user-and-route", 60)?;
//! let limiter = Limiter::new(MemoryStore::new());
//! let limit =
//!     RateLimitLayer::new(limiter, policy, (user_or_client, MatchedPathKey));
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
mod subject;

use std::{any, fmt, marker::PhantomData};

use http::request::Parts;

pub(crate) use self::error::KeyFault;
#[doc(hidden)]
pub use self::extractor::KeyOrigin;
pub use self::{
    error::KeyError,
    extractor::{KeyExtractor, MissingKey, from_fn},
    header::{ApiKey, HeaderKey},
    ip::{ClientIp, PeerIp, PrefixList},
    subject::Key,
};

/// Charges the route that the request matched (`/users/{id}`), one budget per route.
///
/// Slashes at the end are ignored: `/api/` and `/api` are one route. Requests that no route matched share one budget,
/// because with a key per raw path a scanner could create any number of budgets.
///
/// # Examples
///
/// A budget per client and route:
///
/// ```
/// use tollgate::{
///     Limiter, MatchedPathKey, MemoryStore, PeerIp, Policy, RateLimitLayer,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let policy = Policy::per_minute("per-client-and-route", 60)?;
/// let key = (PeerIp::new(), MatchedPathKey);
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, key);
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedPathKey;

impl MatchedPathKey {
    /// Returns the key that requests of the route `path` are charged to, for [`Limiter::reset`](crate::Limiter::reset)
    /// and [`Limiter::peek`](crate::Limiter::peek). `None` stands for all requests that no route matched.
    ///
    /// `path` is the whole template, as the router has it: `/users/{id}`. A text without a slash in front is the path
    /// of no route, so its key is that of `None`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MatchedPathKey, Policy};
    ///
    /// # async fn lift(limiter: Limiter, per_route: Policy) -> Result<(), Box<dyn std::error::Error>> {
    /// limiter.reset(MatchedPathKey.key_of("/users/{id}"), &per_route).await?;
    /// limiter.reset(MatchedPathKey.key_of(None), &per_route).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_of<'a>(&self, path: impl Into<Option<&'a str>>) -> Key {
        route_key(path.into().and_then(without_trailing_slash))
    }
}

impl KeyExtractor for MatchedPathKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(route_key(matched_path(parts))))
    }
}

/// The key of a route's template without a trailing slash, or of the requests that no route matched.
fn route_key(path: Option<&str>) -> Key {
    path.map_or_else(|| Key::reserved(Key::UNMATCHED), Key::from)
}

/// Charges one budget for all requests.
///
/// # Examples
///
/// ```
/// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     Policy::per_second("all", 500)?,
///     GlobalKey,
/// );
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalKey;

impl GlobalKey {
    /// Returns the key that all requests are charged to, for [`Limiter::reset`](crate::Limiter::reset) and
    /// [`Limiter::peek`](crate::Limiter::peek). No text is this key: `Key::from("*")` is another one.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (limiter, all) =
    ///     (Limiter::new(MemoryStore::new()), Policy::per_second("all", 500)?);
    /// let left = limiter.peek(GlobalKey.key_of(), &all).await?.available();
    /// # assert_eq!(left, Some(500));
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_of(&self) -> Key {
        Key::reserved(Key::GLOBAL)
    }
}

impl KeyExtractor for GlobalKey {
    fn extract(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(self.key_of()))
    }
}

/// The route's template, `/users/{id}`, without a trailing slash, if a router has matched one.
#[cfg(feature = "axum")]
pub(crate) fn matched_path(parts: &Parts) -> Option<&str> {
    let path = parts.extensions.get::<axum::extract::MatchedPath>()?.as_str();
    // Newer versions of axum route their fallback through this internal route, which is not a match.
    if path.contains("__private__") { None } else { without_trailing_slash(path) }
}

/// Always `None`, because without axum no router reports a matched route.
#[cfg(not(feature = "axum"))]
pub(crate) fn matched_path(_: &Parts) -> Option<&str> {
    None
}

/// The path that the client has sent. A nested router removes the beginning of the request's path.
#[cfg(feature = "axum")]
pub(crate) fn sent_path(parts: &Parts) -> &str {
    let original = parts.extensions.get::<axum::extract::OriginalUri>();
    original.map_or(&parts.uri, |original| &original.0).path()
}

/// The path that the client has sent.
#[cfg(not(feature = "axum"))]
pub(crate) fn sent_path(parts: &Parts) -> &str {
    parts.uri.path()
}

/// Removes the slashes at the end of a path or template. The root stays `/`. `None` if `path` does not begin with a
/// slash.
pub(crate) fn without_trailing_slash(path: &str) -> Option<&str> {
    match path.trim_end_matches('/') {
        "" if path.starts_with('/') => Some("/"),
        trimmed => trimmed.starts_with('/').then_some(trimmed),
    }
}

/// Charges a value that an outer layer has inserted into the request's extensions, such as the authenticated user.
///
/// `T` is a type whose reference converts into a [`Key`]: your own type, `String`, an integer, or a `Uuid` with feature
/// `uuid`. A request without the extension is refused with 500, because the order of the layers is wrong, unless the
/// layer or the extractor sets another [`MissingKey`].
///
/// # Examples
///
/// ```
/// use tollgate::{ExtensionKey, Key};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// impl From<&UserId> for Key {
///     fn from(user: &UserId) -> Key {
///         Key::from(user.0)
///     }
/// }
///
/// let by_user = ExtensionKey::<UserId>::new();
/// ```
///
/// Authentication must be outside the limit. With `Router::layer`, the last layer is the outermost:
///
/// ```
/// use axum::{
///     Router,
///     extract::Request,
///     middleware::{self, Next},
///     response::Response,
///     routing::get,
/// };
/// use tollgate::{ExtensionKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// async fn authenticate(mut request: Request, next: Next) -> Response {
///     request.extensions_mut().insert(17_u64); // the user's id
///     next.run(request).await
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_user = Policy::per_minute("per-user", 60)?;
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     per_user,
///     ExtensionKey::<u64>::new(),
/// );
/// let app: Router = Router::new()
///     .route("/", get(|| async {}))
///     .layer(limit)
///     .layer(middleware::from_fn(authenticate));
/// # Ok(())
/// # }
/// ```
pub struct ExtensionKey<T>(PhantomData<fn() -> T>);

impl<T> ExtensionKey<T> {
    /// Creates the extractor of the extension `T`.
    pub fn new() -> Self {
        Self(PhantomData)
    }

    /// Returns the key that requests with the extension `value` are charged to, for
    /// [`Limiter::reset`](crate::Limiter::reset) and [`Limiter::peek`](crate::Limiter::peek): `value.into()`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ExtensionKey, Key};
    ///
    /// assert_eq!(ExtensionKey::<u64>::new().key_of(&17), Key::from(17));
    /// ```
    pub fn key_of<'a>(&self, value: &'a T) -> Key
    where
        &'a T: Into<Key>,
    {
        value.into()
    }
}

impl<T> Default for ExtensionKey<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for ExtensionKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ExtensionKey<T> {}

impl<T> fmt::Debug for ExtensionKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionKey<{}>", any::type_name::<T>())
    }
}

impl<T> KeyExtractor for ExtensionKey<T>
where
    T: Send + Sync + 'static,
    for<'a> &'a T: Into<Key>,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let value = parts.extensions.get::<T>();
        value.map(|value| Some(value.into())).ok_or_else(|| KeyError(KeyFault::MissingExtension(any::type_name::<T>())))
    }
}
