//! Events that are not decisions: refusals without a check, abandoned checks, resets.

use std::time::Duration;

use axum::{Router, routing::get};
use http::request::Parts;
use tokio_test::{assert_pending, task};
use tollgate::{
    GlobalKey, HeaderKey, KeyExtractor, Limiter, MemoryStore, MissingKey, Policy, RateLimitLayer, decision::Source,
    policy::PolicySource,
};

use super::recorded;
use crate::support::http::{get as fetch, get_with};
use crate::support::recorder::Recorder;
use crate::support::{DownStore, SilentStore, per_minute};

fn layer<K: KeyExtractor>(policies: impl PolicySource, key: K) -> (RateLimitLayer<K>, Recorder) {
    let recorder = Recorder::default();
    (RateLimitLayer::new(Limiter::new(MemoryStore::new()).with_observer(recorder.clone()), policies, key), recorder)
}

fn app<K: KeyExtractor>(layer: RateLimitLayer<K>) -> Router {
    Router::new().route("/", get(|| async {})).layer(layer)
}

#[tokio::test]
async fn requests_refused_without_a_check_are_reported_with_the_cause() {
    let key = || HeaderKey::new("x-api-key").unwrap();
    let (limit, recorder) = layer(per_minute("p", 5), key());
    let by_query = |parts: &Parts| if parts.uri.query() == Some("big") { 6 } else { 1 };
    let limited = app(limit.with_cost_fn(by_query));
    for (path, keys, status, cause) in [
        ("/", &[][..], 400, Some("missing_key")),
        ("/", &["a", "b"], 400, Some("unusable_key")),
        ("/?big", &["a"], 400, Some("cost_above_limit")),
        ("/", &["a"], 200, None),
    ] {
        let headers: Vec<_> = keys.iter().map(|&key| ("x-api-key", key)).collect();
        assert_eq!(get_with(&limited, path, &headers).await.status, status);
        let seen = recorder.take();
        assert_eq!(seen.refusals, Vec::from_iter(cause));
        assert_eq!(seen.decisions.len(), usize::from(cause.is_none()));
    }
    let (limit, recorder) = layer(|_: &Parts, _: &tollgate::Key| Vec::<Policy>::new(), GlobalKey);
    assert_eq!(fetch(&app(limit), "/").await.status, 500);
    assert_eq!(recorder.take().refusals, ["misconfigured"]);
}

#[tokio::test]
async fn a_request_without_a_key_that_may_pass_is_not_a_refusal() {
    for missing in [MissingKey::Exempt, MissingKey::ShareOneKey] {
        let (limit, recorder) = layer(per_minute("p", 5), HeaderKey::new("x-api-key").unwrap());
        assert_eq!(fetch(&app(limit.on_missing_key(missing)), "/").await.status, 200);
        assert!(recorder.take().refusals.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_before_the_verdict_is_reported_as_abandoned() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(SilentStore).with_observer(recorder.clone());
    let app = app(RateLimitLayer::new(limiter, [per_minute("p", 1), per_minute("q", 9)], GlobalKey));
    tokio::time::timeout(Duration::from_millis(10), fetch(&app, "/")).await.unwrap_err();
    let seen = recorder.take();
    assert_eq!(seen.abandoned, [[("p".to_owned(), 1), ("q".to_owned(), 1)]]);
    assert!(seen.decisions.is_empty() && seen.failures.is_empty());
    // A request that waits until the deadline has a decision and is not abandoned.
    fetch(&app, "/").await;
    let seen = recorder.take();
    assert_eq!((seen.abandoned.len(), seen.decisions[0].source), (0, Source::Open));
}

#[tokio::test]
async fn a_check_that_was_never_sent_and_a_peek_are_not_abandoned() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(SilentStore).with_observer(recorder.clone());
    let policy = per_minute("p", 1);
    drop(limiter.check("k", &policy, 1));
    drop(RateLimitLayer::new(limiter.clone(), policy.clone(), GlobalKey));
    let mut peek = task::spawn(limiter.peek("k", &policy));
    assert_pending!(peek.poll());
    drop(peek);
    assert!(recorder.take().abandoned.is_empty());
    let mut check = task::spawn(limiter.check("k", &policy, 1));
    assert_pending!(check.poll());
    drop(check);
    assert_eq!(recorder.take().abandoned.len(), 1);
}

#[tokio::test]
async fn a_response_future_that_is_dropped_unpolled_is_not_abandoned() {
    use tower::{Layer, Service};
    let recorder = Recorder::default();
    let limiter = Limiter::new(SilentStore).with_observer(recorder.clone());
    let inner = tower::service_fn(|_: http::Request<()>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(axum::body::Body::empty()))
    });
    let mut service = RateLimitLayer::new(limiter, per_minute("p", 1), GlobalKey).layer(inner);
    drop(service.call(http::Request::new(())));
    assert!(recorder.take().abandoned.is_empty());
}

#[tokio::test]
async fn resets_are_reported_with_their_result() {
    let (limiter, recorder) = recorded();
    let _ = limiter.check("k", &per_minute("p", 1), 1).await.unwrap();
    for found in [true, false] {
        assert_eq!(limiter.reset("k", &per_minute("p", 1)).await.unwrap(), found);
        assert_eq!(recorder.take().resets, [("p".to_owned(), Some(found))]);
    }
    let limiter = Limiter::new(DownStore).with_observer(recorder.clone());
    limiter.reset("k", &per_minute("p", 1)).await.unwrap_err();
    let seen = recorder.take();
    assert_eq!(seen.resets, [("p".to_owned(), None)]);
    assert!(seen.failures.is_empty(), "a failed reset is not a failed check");
}
