//! Fields that tollgate writes, read by the layer: the pause is as long as the wait, in every style.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, StatusCode};
use tollgate::{
    Algorithm, Check, Decision, HeaderStyle, Limiter, ManualClock, MemoryStore, Policy, ThrottleLayer,
    headers::HeaderWriter,
};
use tower::Layer;

use super::upstream::{Upstream, call, limiter, millis, secs};
use crate::{headers::fields::STYLES, support::per_minute};

/// How long the layer holds a second call back, after a response with these fields.
async fn pause_after(status: StatusCode, headers: HeaderMap) -> Duration {
    let upstream = Upstream::default();
    upstream.respond(status, headers);
    let layer = ThrottleLayer::new(limiter(), per_minute("own", 1_000), "upstream").with_max_wait(secs(7_200));
    for _ in 0..2 {
        call(&layer.layer(upstream.clone())).await.unwrap();
    }
    upstream.calls()[1] - upstream.calls()[0]
}

/// The fields for a decision, with the `Date` of a server, which has no fractions of a second.
fn fields(style: HeaderStyle, decision: &Decision) -> HeaderMap {
    let mut headers = HeaderMap::new();
    HeaderWriter::new(style).write(decision, &mut headers);
    headers.insert("date", HeaderValue::from_static("Thu, 01 Jan 2026 00:00:20 GMT"));
    let date = UNIX_EPOCH + Duration::from_secs(1_767_225_620);
    let since_date = decision.time().unwrap().duration_since(date).unwrap();
    assert!(since_date < secs(1), "{since_date:?}");
    headers
}

/// A decision that spends the last unit, and the denial after it, 20.3 s after the first unit was spent.
async fn spent_and_denied(check: impl Fn(u64) -> Check) -> [Decision; 2] {
    let clock = ManualClock::default();
    let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
    let _ = limiter.check_all(check(1)).await.unwrap();
    clock.advance(Duration::from_millis(20_300));
    let left = limiter.check_all(check(0)).await.unwrap().available().unwrap();
    [limiter.check_all(check(left)).await.unwrap(), limiter.check_all(check(1)).await.unwrap()]
}

/// Asserts the pause after both decisions: at least the true wait, and less than a second longer. A reset in seconds
/// since the epoch is rounded up, and compared with a `Date` that is rounded down.
async fn assert_pauses(style: HeaderStyle, [spent, denied]: &[Decision; 2]) {
    assert!(spent.is_allowed() && !denied.is_allowed());
    let rounding = if style == HeaderStyle::XRateLimitEpoch { secs(2) } else { secs(1) };
    let wait = denied.retry_after().unwrap();
    let pause = pause_after(StatusCode::TOO_MANY_REQUESTS, fields(style, denied)).await;
    assert!(pause >= wait && pause < wait + rounding, "{style:?}, denied: {pause:?} for {wait:?}");

    let spent_up = || spent.policies().iter().filter(|standing| standing.available == 0);
    let next = spent_up().map(|standing| standing.next).max().unwrap();
    let longest = match style {
        HeaderStyle::None | HeaderStyle::OpenAi | HeaderStyle::TowerGovernorCompat => {
            let pause = pause_after(StatusCode::OK, fields(style, spent)).await;
            assert!(pause < millis(5), "{style:?} states no reset that the layer reads, {pause:?}");
            return;
        }
        // These styles state when all units are back.
        HeaderStyle::EnvoyCompat | HeaderStyle::XRateLimitDelta | HeaderStyle::XRateLimitEpoch => {
            spent_up().map(|standing| standing.reset).max().unwrap()
        }
        _ => next,
    };
    let pause = pause_after(StatusCode::OK, fields(style, spent)).await;
    assert!(pause >= next && pause < longest + rounding, "{style:?}, spent: {pause:?} for {next:?} to {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_as_long_as_the_wait_in_every_style() {
    for style in STYLES {
        for algorithm in [
            Algorithm::SlidingWindowLog,
            Algorithm::SlidingWindowCounter,
            Algorithm::FixedWindow,
            Algorithm::TokenBucket,
        ] {
            let policy = per_minute("p", 7).with_algorithm(algorithm);
            assert_pauses(style, &spent_and_denied(|cost| Check::new("k", &policy, cost)).await).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn with_several_policies_the_pause_is_that_of_the_limit_with_nothing_left() {
    let (narrow, wide) = (per_minute("narrow", 7), Policy::per_day("wide", 1_000).unwrap());
    for style in STYLES {
        let check = |cost| Check::new("k", &narrow, cost).and("k", &wide, cost);
        assert_pauses(style, &spent_and_denied(check).await).await;
    }
}

/// Without a `Date`, an epoch is compared with the clock of the client.
#[tokio::test(start_paused = true)]
async fn a_reset_since_the_epoch_without_a_date_counts_from_now() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let fields =
        HashMap::from([("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", (now + 90).to_string())]);
    let headers = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let pause = pause_after(StatusCode::OK, headers).await;
    // A timer is up to a millisecond late.
    assert!(pause > secs(80) && pause <= secs(90) + Duration::from_millis(1), "{pause:?}");
}

/// As GitHub, Twitter, Anthropic, OpenAI and Discord say it.
#[tokio::test(start_paused = true)]
async fn a_pause_is_as_long_as_widely_used_upstreams_ask_for_in_their_own_words() {
    for (status, fields, pause) in [
        (403, vec![("retry-after", "60")], secs(60)),
        (403, vec![("retry-after", "soon")], secs(0)),
        (403, vec![], secs(0)),
        (420, vec![("retry-after", "7")], secs(7)),
        (529, vec![("retry-after", "12")], secs(12)),
        (503, vec![("retry-after-ms", "1500")], millis(1_500)),
        (429, vec![("retry-after-ms", "2250")], millis(2_250)),
        (429, vec![("retry-after", "3"), ("retry-after-ms", "2250")], secs(3)),
        (200, vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "2.5")], millis(2_500)),
        (200, vec![("x-ratelimit-remaining", "1"), ("x-ratelimit-reset-after", "2.5")], secs(0)),
        (200, vec![("retry-after-ms", "1500")], secs(0)),
    ] {
        let headers = fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let paused = pause_after(StatusCode::from_u16(status).unwrap(), headers).await;
        assert!(paused >= pause && paused < pause + millis(5), "{status} {fields:?}: {paused:?}");
    }
}
