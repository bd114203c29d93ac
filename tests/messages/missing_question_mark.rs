//! A policy without `?`.

use tollgate::{GlobalKey, Limiter, Policy, RateLimitLayer};

pub fn limited(limiter: Limiter) {
    let _ = RateLimitLayer::new(limiter, Policy::per_minute("all", 60), GlobalKey);
}
