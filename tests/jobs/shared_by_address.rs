//! One address, one budget, in all instances.

use tollgate::{ConfigError, PeerIp, Policy, RateLimitLayer, RedisStore};

fn limit(url: &str) -> Result<RateLimitLayer<PeerIp>, ConfigError> {
    Ok(RateLimitLayer::new(RedisStore::open(url)?, Policy::per_minute("per-ip", 60)?, PeerIp::new()))
}

/// The store dials with the first request.
#[tokio::test]
async fn a_limit_for_each_address_in_all_instances() {
    let _ = crate::support::app::app(limit("redis://127.0.0.1:6379").unwrap().validated().unwrap());
    assert!(limit("127.0.0.1").is_err());
}
