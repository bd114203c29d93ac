//! The policies of a request where a source of them is expected.

use tollgate::{GlobalKey, Limiter, RateLimitLayer, policy::Policies};

pub fn limited(limiter: Limiter, policies: Policies) {
    let _ = RateLimitLayer::new(limiter, policies, GlobalKey);
}
