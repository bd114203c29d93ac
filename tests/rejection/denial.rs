//! The response to a request over its limit.

use axum::http::StatusCode;
use tollgate::{GlobalKey, ProblemJson};

use crate::headers::fields::STYLES;
use crate::support::app::{app, get_passes, layer};
use crate::support::http::{Reply, get};

async fn denied() -> Reply {
    let app = app(layer(1, GlobalKey));
    assert!(get_passes(&app, "/").await);
    get(&app, "/").await
}

#[tokio::test]
async fn a_denial_is_429_with_a_problem_document() {
    let reply = denied().await;
    assert_eq!(reply.status, 429);
    assert_eq!(
        reply.json(),
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "violated-policies": ["p"],
        })
    );
}

#[tokio::test]
async fn a_denial_has_retry_after_and_is_not_cached() {
    let reply = denied().await;
    assert_eq!(reply.header("retry-after").as_deref(), Some("60"));
    assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
    assert_eq!(reply.header("ratelimit-policy").as_deref(), Some(r#""p";q=1;w=60"#));
}

#[tokio::test]
async fn a_denial_has_retry_after_in_every_style() {
    for style in STYLES {
        let app = app(layer(1, GlobalKey).with_headers(style));
        assert!(get_passes(&app, "/").await);
        let reply = get(&app, "/").await;
        assert_eq!(reply.header("retry-after").as_deref(), Some("60"), "{style:?}");
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"), "{style:?}");
    }
}

#[tokio::test]
async fn the_status_of_a_denial_can_be_set() {
    let forbidden = ProblemJson::default().with_quota_status(StatusCode::FORBIDDEN);
    let limited = app(layer(1, GlobalKey).with_rejection(forbidden));
    assert!(get_passes(&limited, "/").await);
    let reply = get(&limited, "/").await;
    assert_eq!((reply.status.as_u16(), &reply.json()["status"]), (403, &403.into()));
    let closed = tollgate::RateLimitLayer::new(
        crate::support::app::down_limiter(),
        crate::support::app::per_minute(1),
        GlobalKey,
    );
    let closed = app(closed.fail_closed().with_rejection(forbidden));
    assert_eq!(get(&closed, "/").await.status, 503, "the status of other refusals stays");
}

/// The titles are those of the draft, with its spelling mistakes corrected.
#[tokio::test]
async fn the_problem_type_of_a_denial_can_be_set() {
    for (rejection, status, name, title) in [
        (
            ProblemJson::abnormal_usage(),
            429,
            "abnormal-usage-detected",
            "Request not satisfied due to detection of abnormal request pattern",
        ),
        (
            ProblemJson::reduced_capacity(),
            503,
            "temporary-reduced-capacity",
            "Request cannot be satisfied due to temporary server capacity constraints",
        ),
    ] {
        let app = app(layer(1, GlobalKey).with_rejection(rejection));
        assert!(get_passes(&app, "/").await);
        let reply = get(&app, "/").await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("retry-after").as_deref(), Some("60"));
        assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
        assert_eq!(reply.header("ratelimit-policy").as_deref(), Some(r#""p";q=1;w=60"#));
        assert_eq!(
            reply.json(),
            serde_json::json!({
                "type": format!("https://iana.org/assignments/http-problem-types#{name}"),
                "title": title,
                "status": status,
                "violated-policies": ["p"],
            })
        );
    }
}

#[test]
fn a_quota_document_is_valid_json_for_any_names() {
    let json = |names: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&ProblemJson::default().quota_document(names.iter().copied())).unwrap()
    };
    let names = ["say \"hi\"\\now", "café", "tab\t", "\u{1}"];
    assert_eq!(json(&names)["violated-policies"], serde_json::json!(names));
    assert_eq!(json(&[])["violated-policies"], serde_json::json!([]));
}

#[tokio::test]
async fn denied_requests_do_not_extend_the_wait() {
    let (limiter, clock) = crate::support::app::limiter_and_clock();
    let app = app(tollgate::RateLimitLayer::new(limiter, crate::support::app::per_minute(1), GlobalKey));
    assert!(get_passes(&app, "/").await);
    for seconds in (1..=60).rev() {
        assert_eq!(get(&app, "/").await.header("retry-after").unwrap(), seconds.to_string());
        clock.advance(std::time::Duration::from_secs(1));
    }
    assert!(get_passes(&app, "/").await);
}
