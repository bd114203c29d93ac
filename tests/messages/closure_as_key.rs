//! A closure that returns something else than a key.

use http::request::Parts;
use tollgate::{Limiter, Policy, RateLimitLayer};

pub fn limited(limiter: Limiter, policy: Policy) {
    let _ = RateLimitLayer::new(limiter, policy, |parts: &Parts| parts.uri.port_u16());
}
