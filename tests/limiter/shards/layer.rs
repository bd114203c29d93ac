//! Requests under a policy with shards.

use http::StatusCode;
use http::request::Parts;
use tollgate::{Algorithm, GlobalKey, HeaderStyle, Limiter, RateLimitLayer, Route};
use tower::ServiceBuilder;

use super::{limiter, policy};
use crate::support::counting::{AnswerKind, CountingService, status};
use crate::support::{DownStore, says};
use crate::support::{app::app, http::get};

#[tokio::test]
async fn law_7_requests_pass_as_long_as_a_shard_of_two_has_room_and_no_refused_one_is_forwarded() {
    for kind in AnswerKind::BOTH {
        let layer = RateLimitLayer::new(kind.limiter(), policy(41, 2), GlobalKey);
        let inner = CountingService::default();
        let mut service = ServiceBuilder::new().layer(layer).service(inner.share());
        for _ in 0..41 {
            assert_eq!(status(&mut service).await, StatusCode::OK, "{kind:?}");
        }
        for _ in 0..10 {
            assert_eq!(status(&mut service).await, StatusCode::TOO_MANY_REQUESTS, "{kind:?}");
        }
        assert_eq!(inner.calls(), 41);
    }
}

#[tokio::test]
async fn law_11_requests_and_checks_spend_from_the_same_shards() {
    let (limiter, _clock) = limiter();
    let app = app(RateLimitLayer::new(limiter.clone(), policy(41, 2), |_: &Parts| tollgate::Key::from("k")));
    for _ in 0..20 {
        assert_eq!(get(&app, "/").await.status, 200);
        assert!(limiter.check("k", &policy(41, 2), 1).await.unwrap().is_allowed());
    }
    assert!(limiter.try_check("k", &policy(41, 2), 1).unwrap().is_allowed());
    assert_eq!(get(&app, "/").await.status, 429);
}

#[tokio::test]
async fn fields_contain_the_whole_limit_and_the_units_left_in_one_shard() {
    let bucket = policy(40, 1).with_algorithm(Algorithm::TokenBucket).with_burst(80).with_shards(4);
    for (style, name, log_field, bucket_field) in [
        (HeaderStyle::Draft11, "ratelimit-policy", r#""p";q=40;w=60"#, r#""p";q=40;w=60"#),
        (HeaderStyle::Draft11, "ratelimit", r#""p";r=9;t=60"#, r#""p";r=19;t=29"#),
        (HeaderStyle::Draft07, "ratelimit-policy", "40;w=60", "40;w=60;burst=80"),
        (HeaderStyle::XRateLimitDelta, "x-ratelimit-limit", "40", "80"),
        (HeaderStyle::XRateLimitDelta, "x-ratelimit-remaining", "9", "19"),
    ] {
        for (policy, field) in [(policy(40, 4), log_field), (bucket.clone(), bucket_field)] {
            let app = app(RateLimitLayer::new(limiter().0, policy, GlobalKey).with_headers(style));
            assert_eq!(get(&app, "/").await.header(name).as_deref(), Some(field), "{style:?}");
        }
    }
}

#[tokio::test]
async fn a_cost_above_the_smallest_shard_is_an_error_or_400() {
    let layer = || RateLimitLayer::new(limiter().0, policy(43, 4), GlobalKey);
    let error = layer().with_cost(11).validated().unwrap_err();
    says(
        error,
        r#"a cost of 11 can never pass policy "p", whose smallest of 4 shards lets at most 10 through at once; "#,
    );
    assert!(
        layer().route("/search", Route::new().cost(11)).validated().is_err()
            && layer().with_cost(10).validated().is_ok()
    );
    let app = app(layer().with_cost_fn(|_| 11));
    let reply = get(&app, "/").await;
    assert_eq!((reply.status.as_u16(), reply.header("retry-after")), (400, None));
}

#[tokio::test]
async fn the_failure_policy_decides_when_a_shard_gives_no_verdict() {
    let layer = || RateLimitLayer::new(Limiter::new(DownStore), policy(4, 4), GlobalKey);
    assert_eq!(get(&app(layer().fail_open()), "/").await.status, 200);
    assert_eq!(get(&app(layer().fail_closed()), "/").await.status, 503);
}
