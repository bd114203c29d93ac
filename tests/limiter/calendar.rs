//! Policies with a calendar: what callers and clients see of a window and its end, beside the other settings.

use std::time::{Duration, UNIX_EPOCH};

use axum::http::{Request, Version};
use axum::{Router, body::Body};
use tollgate::{
    Algorithm, Calendar, Check, GlobalKey, GrpcStatus, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer,
    policy::{HoldSettings, Weekday},
};
use tonic::Status;
use tonic_types::StatusExt;

use crate::support::app::{app, limiter_and_clock};
use crate::support::http::{get, send};
use crate::support::{DownStore, says};

const DAY: Duration = Duration::from_secs(86_400);
const MICROSECOND: Duration = Duration::from_micros(1);

/// Of a month from the 15th, 9:00, in Berlin. The clocks of tests start on 2026-01-01 at 0:00 UTC.
fn billing(limit: u64) -> Policy {
    Policy::calendar("billing", limit, Calendar::monthly().on_day(15).at(9, 0).zone("Europe/Berlin")).unwrap()
}

/// From the start of the clock until the 15th at 8:00 UTC.
const UNTIL_END: Duration = Duration::from_secs(14 * 86_400 + 8 * 3_600);

#[tokio::test]
async fn available_and_every_wait_tell_the_real_end_of_the_window() {
    let (limiter, clock) = limiter_and_clock();
    let policy = billing(10);
    assert_eq!((policy.window(), policy.algorithm()), (None, Algorithm::FixedWindow));
    let fresh = limiter.peek("k", &policy).await.unwrap();
    assert_eq!((fresh.available(), fresh.policies()[0].reset), (Some(10), Duration::ZERO));
    let spent = limiter.check("k", &policy, 8).await.unwrap();
    assert_eq!(
        (spent.available(), spent.policies()[0].next, spent.policies()[0].reset),
        (Some(2), UNTIL_END, UNTIL_END)
    );
    clock.advance(UNTIL_END - MICROSECOND);
    let denied = limiter.check("k", &policy, 3).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(MICROSECOND)));
    clock.advance(MICROSECOND);
    let next = limiter.check("k", &policy, 10).await.unwrap();
    // Until 2026-02-15: no change of the clocks.
    assert_eq!((next.is_allowed(), next.policies()[0].reset), (true, 31 * DAY));
}

/// A request that costs nothing sees an untouched window.
#[tokio::test]
async fn clients_see_the_end_of_a_window_in_which_nothing_is_spent() {
    let (limiter, clock) = limiter_and_clock();
    let app: Router = app(RateLimitLayer::new(limiter, billing(2), GlobalKey).with_cost(0));
    for left in [UNTIL_END, UNTIL_END - DAY] {
        let field = format!("\"billing\";r=2;t={}", left.as_secs());
        assert_eq!(get(&app, "/").await.header("ratelimit"), Some(field));
        clock.advance(DAY);
    }
}

#[tokio::test]
async fn clients_see_the_end_of_the_window_and_no_length() {
    let (limiter, _clock) = limiter_and_clock();
    let app: Router = app(RateLimitLayer::new(limiter, billing(2), GlobalKey));
    let seconds = UNTIL_END.as_secs();
    for (status, left) in [(200, 1), (200, 0), (429, 0)] {
        let reply = get(&app, "/").await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("ratelimit-policy").as_deref()),
            (status, Some("\"billing\";q=2"))
        );
        assert_eq!(reply.header("ratelimit").unwrap(), format!("\"billing\";r={left};t={seconds}"));
        let retry_after = (status == 429).then(|| seconds.to_string());
        assert_eq!(reply.header("retry-after"), retry_after);
    }
}

#[tokio::test]
async fn a_refused_grpc_call_names_the_period_of_the_calendar() {
    for (calendar, period) in [
        (Calendar::daily(), "day"),
        (Calendar::weekly(), "week"),
        (Calendar::monthly(), "month"),
        (Calendar::yearly(), "year"),
    ] {
        let policy = Policy::calendar("p", 1, calendar).unwrap();
        let limit = RateLimitLayer::new(limiter_and_clock().0, policy, GlobalKey);
        let app: Router = app(limit.with_rejection(GrpcStatus::default()));
        let call = || {
            let call = Request::post("/login").version(Version::HTTP_2).header("content-type", "application/grpc");
            call.body(Body::empty()).unwrap()
        };
        assert_eq!(send(&app, call()).await.text(), "welcome");
        let status = Status::from_header_map(&send(&app, call()).await.headers).unwrap();
        let quota = status.get_details_quota_failure().unwrap();
        assert_eq!(quota.violations[0].description, format!("1 requests per {period}"));
    }
}

#[tokio::test]
async fn holds_leases_shards_shadows_and_bans_work_in_the_window_of_a_calendar() {
    let (limiter, clock) = limiter_and_clock();
    let holding = billing(10).with_holds(HoldSettings::new().with_ttl(60 * DAY)).validated().unwrap();
    let hold = limiter.hold("k", &holding, 6).await.unwrap().into_result().unwrap();
    let denied = limiter.check("k", &holding, 5).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.available()), (false, Some(4)));
    clock.advance(UNTIL_END);
    hold.settle(3).await.unwrap();
    assert_eq!(limiter.peek("k", &holding).await.unwrap().available(), Some(7), "settled in the next window");

    let sharded = Policy::calendar("sharded", 8, Calendar::daily()).unwrap().with_shards(2);
    let leased = Policy::calendar("leased", 8, Calendar::daily()).unwrap().with_lease(4);
    for policy in [sharded, leased].map(|policy| policy.validated().unwrap()) {
        let mut admitted = 0;
        for _ in 0..40 {
            admitted += u64::from(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
        }
        assert_eq!(admitted, 8, "{policy:?}");
    }

    let shadow = Policy::calendar("shadow", 1, Calendar::weekly().on(Weekday::Sunday)).unwrap().with_shadow(true);
    for would_deny in [false, true] {
        let decision = limiter.check("k", &shadow, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.would_deny()), (true, would_deny));
    }

    let banning = Policy::calendar("banning", 1, Calendar::daily()).unwrap().ban_after(2, 200 * DAY);
    for allowed in [true, false, false] {
        assert_eq!(limiter.check("k", &banning, 1).await.unwrap().is_allowed(), allowed);
    }
    // Further days have begun, and the ban goes on.
    clock.advance(199 * DAY);
    let banned = limiter.check("k", &banning, 1).await.unwrap();
    assert!(!banned.is_allowed() && banned.retry_after() <= Some(DAY), "{banned:?}");
}

#[tokio::test]
async fn another_limit_applies_to_what_is_counted_and_another_calendar_starts_a_fresh_count() {
    let (limiter, _clock) = limiter_and_clock();
    assert!(limiter.check("k", &billing(10), 10).await.unwrap().is_allowed());
    for (policy, available) in [
        (billing(15), 5),
        (billing(4), 0),
        (Policy::calendar("billing", 10, Calendar::monthly().on_day(16).at(9, 0).zone("Europe/Berlin")).unwrap(), 10),
        (Policy::calendar("billing", 10, Calendar::monthly().on_day(15).at(9, 0).zone("UTC")).unwrap(), 10),
        (Policy::new("billing", 10, DAY).unwrap(), 10),
    ] {
        assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(available), "{policy:?}");
    }
}

/// Neither clients nor operators could tell one from the other.
#[tokio::test]
async fn two_policies_that_differ_in_their_calendar_alone_are_a_mistake_of_a_check() {
    let (limiter, _clock) = limiter_and_clock();
    let other = Calendar::monthly().on_day(16).at(9, 0).zone("Europe/Berlin");
    let other = Policy::calendar("billing", 10, other).unwrap();
    let check = Check::new("k", &billing(10), 1).and("k", &billing(10), 2);
    assert_eq!(limiter.check_all(check.clone()).await.unwrap().available(), Some(7));
    let error = limiter.check_all(check.and("k", &other, 1)).await.unwrap_err();
    says(error, r#"two policies of one check are called "billing" "#);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_is_denied_at_once_if_the_window_ends_too_late() {
    let (limiter, clock) = limiter_and_clock();
    let policy = billing(1);
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    let denied = limiter.acquire("k", &policy, 1).within(Duration::from_secs(60)).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(UNTIL_END)));
    clock.advance(UNTIL_END);
    assert!(limiter.acquire("k", &policy, 1).within(Duration::from_secs(60)).await.unwrap().is_allowed());
}

#[tokio::test]
async fn the_local_fallback_counts_in_the_window_of_the_calendar() {
    let clock = ManualClock::default();
    let local = MemoryStore::new().with_clock(clock.clone());
    let limiter = Limiter::new(DownStore).with_local_fallback(local, 2).without_notices();
    let layer = RateLimitLayer::new(limiter, billing(6), GlobalKey).fail_local();
    let app: Router = app(layer);
    for status in [200, 200, 200, 429] {
        assert_eq!(get(&app, "/").await.status.as_u16(), status);
    }
    clock.advance(UNTIL_END);
    assert_eq!(get(&app, "/").await.status.as_u16(), 200);
}

#[test]
fn a_wrong_calendar_is_an_error_that_says_what_to_write_instead() {
    // 2^53 microseconds: the first start that is too late.
    let far = UNIX_EPOCH + Duration::from_micros(1 << 53);
    for (calendar, text) in [
        (Calendar::monthly().on_day(0), "day 0 is in no month; use 1 to 31"),
        (Calendar::monthly().on_day(32).at(24, 0), "day 32 is in no month; use 1 to 31"),
        (Calendar::yearly().in_month(13), "month 13 is in no year; use 1 to 12"),
        (Calendar::daily().at(9, 60), "9:60 is no time of a day; use 0:00 to 23:59"),
        (
            Calendar::daily().zone("Berlin"),
            "\"Berlin\" is not a zone; write a name such as \"Europe/Berlin\", \"UTC\", ",
        ),
        (Calendar::daily().zone("+5:30"), "\"+5:30\" is not a zone; "),
        (Calendar::daily().on(Weekday::Monday), "the calendar has no day of the week, `on`; leave it out, or make it "),
        (Calendar::weekly().on_day(3), "the calendar has no `on_day`; leave it out, or make it a monthly or yearly "),
        (Calendar::monthly().in_month(3), "the calendar has no `in_month`; leave it out, or make it a yearly calendar"),
        (Calendar::anchored(UNIX_EPOCH).at(9, 0), "the calendar has no time, `at`; leave it out, or make it another "),
        (Calendar::anchored(UNIX_EPOCH).on_day(9), "the calendar has no `on_day`; leave it out"),
        (Calendar::anchored(far), "the start of a calendar is out of range; use one within 285 years from 1970"),
    ] {
        let error = Policy::calendar("billing", 1, calendar).unwrap_err();
        says(error, &format!("policy \"billing\": {text}"));
    }
    says(Policy::calendar("billing", 0, Calendar::daily()).unwrap_err(), "policy \"billing\": a limit of 0");
    for (policy, text) in [
        (
            billing(1).with_algorithm(Algorithm::SlidingWindowLog),
            "the windows of a calendar are counted as fixed windows",
        ),
        (billing(1).with_resolution(DAY), "only the sliding window log has a resolution"),
        (billing(9).with_burst(3), "only a token bucket has a burst"),
    ] {
        says(policy.validated().unwrap_err(), &format!("policy \"billing\": {text}"));
    }
}

#[test]
fn an_anniversary_is_the_day_and_the_time_of_its_start_in_its_zone() {
    // 2026-01-31 14:05:00.25 UTC, in Berlin 15:05 on the 31st, and in Tokyo 23:05.
    let start_us = 1_769_868_300_250_000;
    let start = UNIX_EPOCH + Duration::from_micros(start_us) + Duration::from_nanos(999);
    let window = |calendar: Calendar, now_us| {
        let policy = Policy::calendar("p", 1, calendar).unwrap();
        let window = policy.calendar_window(UNIX_EPOCH + Duration::from_micros(now_us)).unwrap();
        let [start, end] = [window.start, window.end].map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_micros());
        u64::try_from(start).unwrap()..u64::try_from(end).unwrap()
    };
    let [days_28, days_59] = [28, 59].map(|days| start_us + days * 86_400_000_000);
    assert_eq!(window(Calendar::anchored(start), start_us), start_us..days_28);
    assert_eq!(window(Calendar::anchored(start), days_28), days_28..days_59);
    // The clocks of Berlin go forward on 2026-03-29.
    let berlin = window(Calendar::anchored(start).zone("Europe/Berlin"), days_28);
    assert_eq!(berlin, days_28..days_59 - 3_600_000_000);
    assert_eq!(window(Calendar::anchored(start).zone("Asia/Tokyo"), start_us - 1).end, start_us);
}

/// Until 2011, the clocks of Newfoundland went back at a minute past midnight, into the day before.
#[test]
fn a_window_that_has_begun_goes_on_while_the_clocks_show_the_day_before_again() {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let window = |seconds| {
        // A policy of its own, because a policy remembers its last window.
        let daily = Policy::calendar("p", 1, Calendar::daily().zone("America/St_Johns")).unwrap();
        daily.calendar_window(at(seconds)).unwrap()
    };
    // 2010-11-07 has 25 hours.
    let (start, end) = (1_289_097_000, 1_289_187_000);
    for seconds in [start, start + 59, start + 60, start + 15 * 60, start + 60 * 60, end - 1] {
        assert_eq!(window(seconds), at(start)..at(end), "{seconds}");
    }
    assert_eq!((window(start - 1).end, window(end).start), (at(start), at(end)));
}
