//! The name of a policy in place of the policy, without the feature `serde`.

use tollgate::{GlobalKey, Limiter, RateLimitLayer, policy};

pub fn limited(limiter: Limiter) {
    let _ = RateLimitLayer::new(limiter, policy::from_fn(|_, _| "paid".to_owned()), GlobalKey);
}
