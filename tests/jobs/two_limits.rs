//! Two limits at once, the second only for those who are logged in.

use tollgate::{ConfigError, ExtensionKey, Limiter, PeerIp, Policy, RateLimitLayer};

fn limit(limiter: Limiter) -> Result<RateLimitLayer<PeerIp>, ConfigError> {
    let (per_ip, per_user) = (Policy::per_minute("per-ip", 60)?, Policy::per_minute("per-user", 600)?);
    RateLimitLayer::new(limiter, per_ip, PeerIp::new()).and_optional(per_user, ExtensionKey::<u64>::new()).validated()
}

#[tokio::test]
async fn a_limit_for_each_address_and_another_for_those_who_are_logged_in() {
    let app = crate::support::app::app(limit(crate::support::app::limiter()).unwrap());
    for (user, policies) in [(None, r#""per-ip";q=60;w=60"#), (Some(7_u64), r#""per-user""#)] {
        let mut request = crate::support::http::request(http::Method::GET, "/", &[]);
        request.extensions_mut().insert(axum::extract::ConnectInfo(std::net::SocketAddr::from(([203, 0, 113, 7], 1))));
        user.map(|user| request.extensions_mut().insert(user));
        let reply = crate::support::http::send(&app, request).await;
        assert_eq!(reply.status, 200);
        assert!(reply.header("ratelimit-policy").unwrap().contains(policies), "{user:?}");
    }
}
