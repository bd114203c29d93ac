//! Decisions as JSON.

use std::time::Duration;

use axum::{Json, Router};
use serde_json::{Value, json, to_value};
use tollgate::{
    Algorithm, Calendar, Check, Decision, GlobalKey, Policy, RateLimitLayer, decision::Source, headers::PartitionKeys,
};

use crate::support::app::{down_limiter, limiter_and_clock, per_minute};
use crate::support::http::get;

#[tokio::test]
async fn every_field_of_an_allowed_check_is_as_documented() {
    let (limiter, clock) = limiter_and_clock();
    let policy = Policy::new("per-client", 10, Duration::from_millis(1_500)).unwrap();
    let _ = limiter.check("k", &policy, 3).await.unwrap();
    clock.advance(Duration::from_micros(400_001));
    let decision = limiter.check("k", &policy, 2).await.unwrap();
    let expected = json!({
        "allowed": true,
        "source": "store",
        "available": 5,
        "retry_after": null,
        "retry_after_us": null,
        "policies": [{
            "name": "per-client",
            "limit": 10,
            "window": 2,
            "capacity": 10,
            "cost": 2,
            "violated": false,
            "shadow": false,
            "would_deny": false,
            "available": 5,
            "retry_after": null,
            "retry_after_us": null,
            "next": 2,
            "reset": 2,
            "ban": null,
        }],
    });
    assert_eq!(to_value(&decision).unwrap(), expected);
    // The order of the fields is the documented one.
    let text = serde_json::to_string(&decision).unwrap();
    assert!(text.starts_with(r#"{"allowed":true,"source":"store","available":5,"retry_after":null,"#), "{text}");
    // A policy alone serializes as within a decision.
    assert_eq!(to_value(&decision.policies()[0]).unwrap(), expected["policies"][0]);
}

#[tokio::test]
async fn waits_are_whole_seconds_rounded_up_and_exact_microseconds() {
    let (limiter, clock) = limiter_and_clock();
    let policy = per_minute(1).ban_after(1, Duration::from_secs(600));
    let _ = limiter.check("k", &policy, 1).await.unwrap();
    clock.advance(Duration::from_micros(1));
    let banned = to_value(limiter.check("k", &policy, 1).await.unwrap()).unwrap();
    clock.advance(Duration::from_micros(1));
    let later = to_value(limiter.check("k", &policy, 1).await.unwrap()).unwrap();
    let waits = |decision: &Value| {
        let standing = &decision["policies"][0];
        assert_eq!(decision["retry_after"], standing["retry_after"]);
        assert_eq!(decision["retry_after_us"], standing["retry_after_us"]);
        json!([standing["retry_after"], standing["retry_after_us"], standing["ban"]])
    };
    assert_eq!(waits(&banned), json!([600, 600_000_000, 600]));
    assert_eq!(waits(&later), json!([600, 599_999_999, 600]));
    assert_eq!(later["policies"][0]["violated"], true);
}

#[tokio::test]
async fn a_peek_waits_for_nothing_while_something_is_left() {
    let (limiter, _) = limiter_and_clock();
    let policy = per_minute(2);
    for (left, wait) in [(2, None), (1, None), (0, Some(60))] {
        let peek = to_value(limiter.peek("k", &policy).await.unwrap()).unwrap();
        let standing = &peek["policies"][0];
        assert_eq!((&standing["available"], &standing["retry_after"]), (&json!(left), &json!(wait)));
        let _ = limiter.check("k", &policy, 1).await.unwrap();
    }
}

#[tokio::test]
async fn a_burst_above_the_limit_is_the_capacity() {
    let (limiter, _) = limiter_and_clock();
    let policy = per_minute(10).with_algorithm(Algorithm::TokenBucket).with_burst(30);
    let decision = to_value(limiter.peek("k", &policy).await.unwrap()).unwrap();
    let standing = &decision["policies"][0];
    assert_eq!(
        (&standing["limit"], &standing["capacity"], &standing["available"]),
        (&json!(10), &json!(30), &json!(30))
    );
}

#[tokio::test]
async fn a_window_without_a_length_is_null() {
    let (limiter, _) = limiter_and_clock();
    for policy in [
        Policy::calendar("month", 5, Calendar::monthly()),
        Policy::concurrent("slots", 5),
        Policy::blocked("suspended"),
    ] {
        let decision = to_value(limiter.peek("k", &policy.unwrap()).await.unwrap()).unwrap();
        let standing = &decision["policies"][0];
        assert!(standing["limit"].is_number() && standing["window"].is_null(), "{standing}");
    }
}

#[tokio::test]
async fn several_policies_are_in_their_order() {
    let (limiter, _) = limiter_and_clock();
    let policy = |name| Policy::per_minute(name, 5).unwrap();
    let check = Check::new("k", &policy("b"), 6).and("k", &policy("a"), 5);
    let decision = to_value(limiter.check_all(check).await.unwrap()).unwrap();
    let names: Vec<_> = decision["policies"].as_array().unwrap().iter().map(|policy| &policy["name"]).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!((&decision["allowed"], &decision["retry_after"]), (&json!(false), &json!(null)));
    assert_eq!(decision["available"], 5);
}

#[tokio::test]
async fn a_shadow_policy_says_so_and_whether_it_would_deny() {
    let (limiter, _) = limiter_and_clock();
    let shadow = per_minute(1).with_shadow(true);
    for would_deny in [false, true] {
        let decision = to_value(limiter.check("k", &shadow, 1).await.unwrap()).unwrap();
        let standing = &decision["policies"][0];
        assert_eq!((&decision["allowed"], &standing["violated"]), (&json!(true), &json!(false)));
        assert_eq!((&standing["shadow"], &standing["would_deny"]), (&json!(true), &json!(would_deny)));
    }
}

#[test]
fn every_source_is_its_name_in_snake_case() {
    let sources = [
        (Source::Closed, "closed"),
        (Source::DenyCache, "deny_cache"),
        (Source::Lease, "lease"),
        (Source::Local, "local"),
        (Source::Open, "open"),
        (Source::Overloaded, "overloaded"),
        (Source::Queue, "queue"),
        (Source::Store, "store"),
        (Source::WaitersFull, "waiters_full"),
    ];
    for (source, name) in sources {
        assert_eq!(to_value(source).unwrap(), name);
    }
}

#[tokio::test]
async fn law_10_no_key_and_no_error_of_the_store_is_in_the_json() {
    let (limiter, _) = limiter_and_clock();
    let policy = per_minute(10).with_partition_keys(PartitionKeys::label(|_| b"SECRET-PARTITION".to_vec()));
    let judged = serde_json::to_string(&limiter.check("SECRET-KEY", &policy, 1).await.unwrap()).unwrap();
    assert!(!judged.contains("SECRET"), "{judged}");

    // A handler behind a layer whose store fails with a secret text.
    let limit = RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey).fail_open();
    let app = Router::new().route("/", axum::routing::get(async |decision: Decision| Json(decision))).layer(limit);
    let open =
        r#"{"allowed":true,"source":"open","available":null,"retry_after":null,"retry_after_us":null,"policies":[]}"#;
    assert_eq!(get(&app, "/").await.text(), open);
}
