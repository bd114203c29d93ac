//! Keys that are not about the caller: the route, or everybody.

use http::request::Parts;

use super::{Key, KeyError, KeyExtractor};
use crate::route::matched_path;

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
