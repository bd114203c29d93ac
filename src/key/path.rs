//! Keys that do not depend on the caller: the route, or one key for all requests.

use http::request::Parts;

use super::{error::KeyError, extractor::KeyExtractor, subject::Key};

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
/// use tollgate::{Limiter, MatchedPathKey, MemoryStore, PeerIp, Policy, RateLimitLayer};
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

impl KeyExtractor for MatchedPathKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(matched_path(parts).map_or_else(|| Key::reserved(Key::UNMATCHED), Key::from)))
    }
}

/// Charges one budget for all requests.
///
/// # Examples
///
/// ```
/// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), Policy::per_second("all", 500)?, GlobalKey);
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalKey;

impl KeyExtractor for GlobalKey {
    fn extract(&self, _: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(Key::reserved(Key::GLOBAL)))
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
