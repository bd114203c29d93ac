//! Keys that are not about the caller: the route, or everybody.

use http::request::Parts;

use super::{error::KeyError, extractor::KeyExtractor, subject::Key};

/// Charges the route that the request matched (`/users/{id}`), one budget per route.
///
/// Slashes at the end do not count: `/api/` and `/api` are one route.
/// Requests that no route matched share one bucket, for a key per raw path would let a scanner make as many as it
/// likes. Combine it with another extractor for a budget per client and route: `(PeerIp::default(), MatchedPathKey)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedPathKey;

impl KeyExtractor for MatchedPathKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        Ok(Some(matched_path(parts).map_or_else(|| Key::reserved(Key::UNMATCHED), Key::from)))
    }
}

/// Charges one budget for all requests.
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
    // Not a route of the user's: newer versions of axum route their fallback through it.
    if path.contains("__private__") { None } else { without_trailing_slash(path) }
}

/// Without a router that says so, no route is matched.
#[cfg(not(feature = "axum"))]
pub(crate) fn matched_path(_: &Parts) -> Option<&str> {
    None
}

/// The path, or template, without slashes at its end, `/` for the root; `None` if it does not begin with a slash.
pub(crate) fn without_trailing_slash(path: &str) -> Option<&str> {
    match path.trim_end_matches('/') {
        "" if path.starts_with('/') => Some("/"),
        trimmed => trimmed.starts_with('/').then_some(trimmed),
    }
}
