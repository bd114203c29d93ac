//! Responses while the store fails: open, closed, and what clients and handlers see.

use std::time::Duration;

use axum::{Router, body::Body, http::request::Parts, response::Response};
use tollgate::rejection::{Denial, Reason};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{
    Check, Decision, Error, ErrorKind, FailurePolicy, GlobalKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer,
    decision::Source, limiter::HoldAnswer,
};

use crate::support::app::{app, down_limiter, per_minute};
use crate::support::http::get;

const SECRET: &str = "redis://admin:hunter2@10.0.0.7 refused";

/// Fails with the given kind, as a ready or as a pending store.
#[derive(Debug)]
struct ErrorStore {
    kind: ErrorKind,
    pending: bool,
}

impl Store for ErrorStore {
    fn check(&self, _: &Check) -> Answer<Verdict> {
        let error = Error::new(self.kind, SECRET);
        if self.pending { Answer::pending(async { Err(error) }) } else { Answer::Ready(Err(error)) }
    }

    fn reset(&self, _: &Key, _: &Policy) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

const KINDS: [ErrorKind; 5] = [
    ErrorKind::BadKey,
    ErrorKind::InvalidCall,
    ErrorKind::Deadline,
    ErrorKind::StoreMisconfigured,
    ErrorKind::Unavailable,
];

fn limit(limiter: Limiter) -> RateLimitLayer<GlobalKey> {
    RateLimitLayer::new(limiter, per_minute(1), GlobalKey)
}

#[tokio::test]
async fn open_lets_requests_pass_without_rate_limit_headers() {
    let by_value = limit(down_limiter()).fail_closed().on_store_failure(FailurePolicy::Open);
    for limit in [limit(down_limiter()), limit(down_limiter()).fail_closed().fail_open(), by_value] {
        let app = app(limit);
        for _ in 0..3 {
            let reply = get(&app, "/").await;
            assert_eq!((reply.status.as_u16(), reply.text()), (200, "home"));
            for name in ["ratelimit", "ratelimit-policy", "retry-after", "cache-control"] {
                assert_eq!(reply.header(name), None, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn closed_refuses_with_503_and_retry_after() {
    let app = app(limit(down_limiter()).fail_closed());
    let reply = get(&app, "/").await;
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("retry-after").as_deref(), Some("1"));
    assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
    assert_eq!(reply.header("ratelimit"), None);
    let problem = reply.json();
    assert_eq!(problem["type"], "about:blank", "an outage is not a spent quota");
    assert_eq!(problem["title"], "Service Unavailable");
    assert_eq!(problem["violated-policies"], serde_json::Value::Null);
}

#[tokio::test]
async fn the_retry_after_of_an_outage_can_be_set() {
    let wait = Duration::from_millis(4_001);
    let app = app(limit(down_limiter()).fail_closed().with_outage_retry_after(wait));
    let reply = get(&app, "/").await;
    assert_eq!(reply.header("retry-after").as_deref(), Some("5"));
    assert_eq!(reply.extensions.get::<Denial>().unwrap().retry_after(), Some(Duration::from_secs(5)));
}

#[tokio::test]
async fn every_kind_of_failure_of_a_store_follows_the_policy() {
    for kind in KINDS.into_iter().filter(|kind| *kind != ErrorKind::InvalidCall) {
        for pending in [false, true] {
            let limit = limit(Limiter::new(ErrorStore { kind, pending }));
            assert_eq!(get(&app(limit.clone()), "/").await.status, 200, "{kind:?}");
            assert_eq!(get(&app(limit.fail_closed()), "/").await.status, 503, "{kind:?}");
        }
    }
}

/// A check that is wrong fails as long as the program runs, so to let it pass would be to have no limit.
#[tokio::test]
async fn law_14_an_error_of_configuration_is_refused_by_every_failure_policy() {
    for pending in [false, true] {
        let wrong = || Limiter::new(ErrorStore { kind: ErrorKind::InvalidCall, pending }).without_notices();
        let local = wrong().with_local_fallback(MemoryStore::new(), 1);
        let layers = [limit(wrong()).fail_open(), limit(wrong()).fail_closed(), limit(local.clone()).fail_local()];
        for layer in layers {
            assert_eq!(get(&app(layer), "/").await.status, 503);
        }
        let policy = per_minute(1);
        let checked = local.check("k", &policy, 1).fail_local().await;
        assert_eq!(
            checked.unwrap_err().kind(),
            ErrorKind::InvalidCall,
            "the share does not judge a check that is wrong"
        );
    }
    let error = Error::new(ErrorKind::InvalidCall, "wrong");
    for policy in [FailurePolicy::Open, FailurePolicy::Closed, FailurePolicy::Local] {
        assert!(!policy.resolve::<Decision>(Err(error.clone())).is_allowed());
        assert!(!policy.resolve::<HoldAnswer>(Err(error.clone())).is_allowed());
    }
}

#[tokio::test]
async fn law_10_no_store_text_reaches_a_client() {
    for kind in KINDS {
        for pending in [false, true] {
            let limit = limit(Limiter::new(ErrorStore { kind, pending }));
            for app in [app(limit.clone()), app(limit.fail_closed())] {
                let reply = get(&app, "/").await;
                let seen = format!("{:?} {}", reply.headers, reply.text());
                for word in ["redis", "admin", "hunter2", "10.0.0.7", "refused"] {
                    assert!(!seen.contains(word), "{kind:?}: {seen}");
                }
            }
        }
    }
}

#[tokio::test]
async fn handlers_and_rejections_see_the_outage() {
    let handler = |axum::Extension(decision): axum::Extension<Decision>| async move {
        format!("{:?} {:?} {}", decision.source(), decision.available(), decision.policies().len())
    };
    let open = Router::new().route("/", axum::routing::get(handler));
    let open = open.layer(limit(down_limiter()).with_decision_in_response(true));
    let reply = get(&open, "/").await;
    assert_eq!(reply.text(), "Open None 0");
    assert_eq!(reply.extensions.get::<Decision>().unwrap().source(), Source::Open);

    let own = |_: &Parts, denial: &Denial| {
        assert_eq!(denial.reason(), Reason::StoreUnavailable);
        Response::builder().status(denial.status()).body(Body::from("back soon")).unwrap()
    };
    let closed = app(limit(down_limiter()).fail_closed().with_rejection(own));
    let reply = get(&closed, "/").await;
    assert_eq!((reply.status.as_u16(), reply.text()), (503, "back soon"));
    assert_eq!(reply.header("retry-after").as_deref(), Some("1"));
    assert_eq!(reply.extensions.get::<Denial>().unwrap().reason(), Reason::StoreUnavailable);
}

/// For a ready and for a pending store.
#[tokio::test]
async fn an_outer_middleware_reads_the_decision_of_a_request_that_was_refused_in_an_outage() {
    for pending in [false, true] {
        let closed = app(limit(Limiter::new(ErrorStore { kind: ErrorKind::Unavailable, pending })).fail_closed());
        let reply = get(&closed, "/").await;
        let decision = reply.extensions.get::<Decision>().unwrap();
        assert_eq!((reply.status.as_u16(), decision.is_allowed(), decision.source()), (503, false, Source::Closed));
        assert!(decision.policies().is_empty() && reply.extensions.get::<Denial>().unwrap().decision().is_none());
    }
}
