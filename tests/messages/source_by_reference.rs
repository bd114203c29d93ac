//! A source of policies by reference.

use tollgate::{GlobalKey, Limiter, Policy, RateLimitLayer};

pub fn limited(limiter: Limiter, policy: &'static Policy) {
    let _ = RateLimitLayer::new(limiter, policy, GlobalKey);
}
