//! The extractor of a key from the request's extensions.

use std::{any, fmt, marker::PhantomData};

use http::request::Parts;

use super::{
    error::{KeyError, KeyFault},
    extractor::KeyExtractor,
    subject::Key,
};

/// Charges a value that an outer layer has inserted into the request's extensions, such as the authenticated user.
///
/// `T` is a type whose reference converts into a [`Key`]: your own type, `String`, an integer, or a `Uuid` with feature
/// `uuid`. A request without the extension is refused with 500, because the order of the layers is wrong, unless the
/// layer or the extractor sets another [`MissingKey`](crate::MissingKey).
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
/// use axum::{Router, extract::Request, middleware::{self, Next}, response::Response, routing::get};
/// use tollgate::{ExtensionKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// async fn authenticate(mut request: Request, next: Next) -> Response {
///     request.extensions_mut().insert(17_u64); // the user's id
///     next.run(request).await
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_user = Policy::per_minute("per-user", 60)?;
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_user, ExtensionKey::<u64>::new());
/// let app: Router =
///     Router::new().route("/", get(|| async {})).layer(limit).layer(middleware::from_fn(authenticate));
/// # Ok(())
/// # }
/// ```
pub struct ExtensionKey<T>(PhantomData<fn() -> T>);

impl<T> ExtensionKey<T> {
    /// Creates the extractor of the extension `T`.
    pub fn new() -> Self {
        Self(PhantomData)
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
