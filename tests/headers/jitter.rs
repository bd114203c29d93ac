//! Jitter: waits are extended by a random time and never shortened.

use std::{collections::BTreeSet, time::Duration};

use axum::http::HeaderMap;
use tollgate::{
    Algorithm, Decision, Error, ErrorKind, FailurePolicy, GlobalKey, HeaderStyle, Policy, RateLimitLayer,
    headers::HeaderWriter, rejection::Denial,
};

use crate::support::app::{app, down_limiter, get_passes, limiter, limiter_and_clock};
use crate::support::http::{Reply, get};

const STYLES: [(HeaderStyle, &str); 4] = [
    (HeaderStyle::Draft06, "ratelimit-reset"),
    (HeaderStyle::Draft11, "ratelimit"),
    (HeaderStyle::TowerGovernorCompat, "x-ratelimit-after"),
    (HeaderStyle::XRateLimitDelta, "x-ratelimit-reset"),
];

fn jittered(style: HeaderStyle, most: u32) -> HeaderWriter {
    HeaderWriter::new(style).with_jitter(Duration::from_secs(most.into()))
}

fn retry_after(reply: &Reply) -> u64 {
    reply.header("retry-after").unwrap().parse().unwrap()
}

/// 500 requests are denied at the same instant, 30 seconds before the window ends.
#[tokio::test]
async fn denied_clients_are_spread_over_the_jitter_and_all_headers_agree() {
    for (style, name) in STYLES {
        let (limiter, clock) = limiter_and_clock();
        let policy = Policy::per_minute("p", 1).unwrap().with_algorithm(Algorithm::FixedWindow);
        let limit = RateLimitLayer::new(limiter, policy, GlobalKey);
        let app = app(limit.with_headers(jittered(style, 10)));
        clock.advance(Duration::from_secs(30));
        assert!(get_passes(&app, "/").await);
        let mut waits = BTreeSet::new();
        for _ in 0..500 {
            let reply = get(&app, "/").await;
            let wait = retry_after(&reply);
            assert!(reply.header(name).unwrap().ends_with(&wait.to_string()), "{style:?}: {reply:?}");
            let denial = reply.extensions.get::<Denial>().unwrap();
            assert_eq!(denial.retry_after(), Some(Duration::from_secs(wait)));
            assert_eq!(
                denial.decision().unwrap().retry_after(),
                Some(Duration::from_secs(30)),
                "the decision has the wait without jitter"
            );
            waits.insert(wait);
        }
        // Each second has about 45 of the 500 waits.
        assert_eq!(waits, (30..=40).collect(), "{style:?}");
        clock.advance(Duration::from_secs(30));
        assert!(get_passes(&app, "/").await, "the shortest wait is long enough");
    }
}

#[tokio::test]
async fn an_allowed_response_with_no_units_left_has_jitter() {
    let writer = jittered(HeaderStyle::Draft11, 10);
    let mut waits = BTreeSet::new();
    for _ in 0..200 {
        let limit = RateLimitLayer::new(limiter(), Policy::per_minute("p", 2).unwrap(), GlobalKey);
        let app = app(limit.with_headers(writer.clone()));
        assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=1;t=60"#));
        waits.insert(get(&app, "/").await.header("ratelimit").unwrap());
    }
    assert!(waits.len() > 5 && waits.iter().all(|limit| limit.starts_with(r#""p";r=0;t="#)), "{waits:?}");
}

#[tokio::test]
async fn a_limit_with_units_left_beside_a_spent_one_has_no_jitter() {
    let policies = [Policy::per_minute("p", 1).unwrap(), Policy::per_hour("wide", 10).unwrap()];
    for _ in 0..100 {
        let limit = RateLimitLayer::new(limiter(), policies.clone(), GlobalKey);
        let reply = get(&app(limit.with_headers(jittered(HeaderStyle::Draft11, 10))), "/").await;
        let limits = reply.header("ratelimit").unwrap();
        assert!(limits.ends_with(r#", "wide";r=9;t=3600"#), "{limits}");
    }
}

#[tokio::test]
async fn a_short_wait_is_at_most_doubled() {
    let writer = jittered(HeaderStyle::Draft11, 3_600);
    let closed = RateLimitLayer::new(down_limiter(), Policy::per_minute("p", 1).unwrap(), GlobalKey).fail_closed();
    let app = app(closed.with_headers(writer.clone()));
    let (mut waits, mut without_layer) = (BTreeSet::new(), BTreeSet::new());
    let denied: Decision = FailurePolicy::Closed.resolve(Err(Error::new(ErrorKind::Unavailable, "away")));
    for _ in 0..100 {
        waits.insert(retry_after(&get(&app, "/").await));
        let mut headers = HeaderMap::new();
        writer.write(&denied, &mut headers);
        without_layer.insert(headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap());
    }
    assert_eq!(waits, BTreeSet::from([1, 2]));
    assert_eq!(without_layer, waits);
}
