//! Longer waits for some, shorter ones for nobody.

use std::{collections::BTreeSet, time::Duration};

use tollgate::{Algorithm, GlobalKey, HeaderStyle, Policy, RateLimitLayer, headers::Writer, rejection::Denial};

use crate::support::{
    app::{app, down_limiter, get_passes, limiter, limiter_and_clock},
    http::{Reply, get},
};

const STYLES: [(HeaderStyle, &str); 4] = [
    (HeaderStyle::Draft06, "ratelimit-reset"),
    (HeaderStyle::Draft11, "ratelimit"),
    (HeaderStyle::TowerGovernorCompat, "x-ratelimit-after"),
    (HeaderStyle::XRateLimitDelta, "x-ratelimit-reset"),
];

fn jittered(style: HeaderStyle, most: u32) -> Writer {
    Writer::new(style).with_jitter(Duration::from_secs(most.into()))
}

fn retry_after(reply: &Reply) -> u64 {
    reply.header("retry-after").unwrap().parse().unwrap()
}

/// 500 clients that are refused at the same instant, 30 seconds before the window ends.
#[tokio::test]
async fn refused_clients_are_spread_over_the_jitter_and_every_field_says_the_same() {
    for (style, name) in STYLES {
        let (limiter, clock) = limiter_and_clock();
        let policy = Policy::per_minute("p", 1).unwrap().with_algorithm(Algorithm::FixedWindow);
        let limit = RateLimitLayer::new(limiter, policy, GlobalKey);
        let app = app(limit.with_header_writer(jittered(style, 10)));
        clock.advance(Duration::from_secs(30));
        assert!(get_passes(&app, "/").await);
        let mut told = BTreeSet::new();
        for _ in 0..500 {
            let reply = get(&app, "/").await;
            let wait = retry_after(&reply);
            assert!(reply.header(name).unwrap().ends_with(&wait.to_string()), "{style:?}: {reply:?}");
            let denial = reply.extensions.get::<Denial>().unwrap();
            assert_eq!(denial.retry_after(), Some(Duration::from_secs(wait)));
            assert_eq!(denial.decision().unwrap().retry_after(), Some(Duration::from_secs(30)), "the wait itself");
            told.insert(wait);
        }
        // Each second has about 45 of them.
        assert_eq!(told, (30..=40).collect(), "{style:?}");
        clock.advance(Duration::from_secs(30));
        assert!(get_passes(&app, "/").await, "the shortest wait is long enough");
    }
}

#[tokio::test]
async fn an_allowed_response_is_spread_where_nothing_is_left() {
    let writer = jittered(HeaderStyle::Draft11, 10);
    let mut told = BTreeSet::new();
    for _ in 0..200 {
        let limit = RateLimitLayer::new(limiter(), Policy::per_minute("p", 2).unwrap(), GlobalKey);
        let app = app(limit.with_header_writer(writer));
        assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=1;t=60"#));
        told.insert(get(&app, "/").await.header("ratelimit").unwrap());
    }
    assert!(told.len() > 5 && told.iter().all(|limit| limit.starts_with(r#""p";r=0;t="#)), "{told:?}");
}

#[tokio::test]
async fn a_short_wait_is_at_most_doubled() {
    let writer = jittered(HeaderStyle::Draft11, 3_600);
    let closed = RateLimitLayer::new(down_limiter(), Policy::per_minute("p", 1).unwrap(), GlobalKey).fail_closed();
    let app = app(closed.with_header_writer(writer));
    let mut told = BTreeSet::new();
    for _ in 0..100 {
        told.insert(retry_after(&get(&app, "/").await));
    }
    assert_eq!(told, BTreeSet::from([1, 2]));
}
