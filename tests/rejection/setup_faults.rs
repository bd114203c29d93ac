//! Misconfigured services: the status is not a client error, and the text names the fix.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::{Extension, Router, extract::connect_info::MockConnectInfo, routing::get};
use http::request::Parts;
use tollgate::observe::{Event, Observer};
use tollgate::{ClientIp, ExtensionKey, GlobalKey, Key, Limiter, MemoryStore, MissingKey, Policy, RateLimitLayer};

use crate::support::http::{get as fetch, get_with};

#[derive(Clone)]
struct UserId(u64);

impl From<&UserId> for Key {
    fn from(user: &UserId) -> Self {
        Self::from(user.0)
    }
}

fn policy(limit: u64) -> Policy {
    Policy::per_minute("p", limit).unwrap()
}

fn limiter() -> Limiter {
    Limiter::new(MemoryStore::new())
}

/// Records the refusals and warnings that an operator sees.
#[derive(Clone, Default)]
struct OperatorLog(Arc<Mutex<Vec<String>>>);

impl Observer for OperatorLog {
    fn on_event(&self, event: &Event<'_>) {
        match event.name() {
            "refusal" => self.0.lock().unwrap().push(format!("{} {event}", event.outcome())),
            "warning" => self.0.lock().unwrap().push(event.outcome().to_owned()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_limit_outside_the_layer_that_inserts_its_key_is_500_and_the_fix_is_in_the_log() {
    let log = OperatorLog::default();
    let limit = RateLimitLayer::new(limiter().with_observer(log.clone()), policy(9), ExtensionKey::<UserId>::new());
    let router = Router::new().route("/", get(|| async {}));
    // The last layer of a router is the outermost: here the limit comes before authentication.
    let wrong = router.clone().layer(Extension(UserId(7))).layer(limit.clone());
    let reply = fetch(&wrong, "/").await;
    assert_eq!(reply.status, 500);
    let detail = "The rate limit of this service is set up wrongly; the log of the service has the cause.";
    assert_eq!(reply.json()["detail"], detail, "no name of a Rust type");
    let lines = log.0.lock().unwrap().clone();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with("misconfigured ") && line.contains("UserId"), "{line}");
    assert!(line.contains("must run before (outside) the rate limit"), "{line}");
    // Where users may be anonymous, a missing user is not a fault.
    let anonymous = router.clone().layer(limit.clone().on_missing_key(MissingKey::Exempt));
    assert_eq!(fetch(&anonymous, "/").await.status, 200);
    let right = router.layer(limit).layer(Extension(UserId(7)));
    assert_eq!(fetch(&right, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=8;t=60"#));
}

#[tokio::test]
async fn a_trusted_proxy_that_does_not_send_the_header_warns_once() {
    let log = OperatorLog::default();
    let client = ClientIp::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(RateLimitLayer::new(limiter().with_observer(log.clone()), policy(9), client))
        .layer(MockConnectInfo(SocketAddr::from(([10, 0, 0, 1], 1))));
    assert_eq!(get_with(&app, "/", &[("x-forwarded-for", "203.0.113.7")]).await.status, 200);
    assert!(log.0.lock().unwrap().is_empty());
    for _ in 0..3 {
        assert_eq!(fetch(&app, "/").await.status, 400);
    }
    let log = log.0.lock().unwrap();
    assert_eq!(log.iter().filter(|line| *line == "forwarded_header_missing").count(), 1, "{log:?}");
}

#[tokio::test]
async fn the_same_policy_twice_is_an_error_and_never_charged_twice() {
    let twice = || RateLimitLayer::new(limiter(), [policy(9), policy(9)], GlobalKey);
    let duplicate = r#"two policies of one check are called "p" and would share their counts; rename one"#;
    assert_eq!(twice().validated().unwrap_err().to_string(), duplicate);
    assert_eq!(twice().with_cost(2).validated().unwrap_err().to_string(), duplicate);
    // Policies that are chosen for each request are checked with the request.
    let dynamic = RateLimitLayer::new(limiter(), |_: &Parts, _: &Key| vec![policy(9), policy(9)], GlobalKey);
    let router = || Router::new().route("/", get(|| async {}));
    for app in [router().layer(twice()), router().layer(dynamic)] {
        let reply = fetch(&app, "/").await;
        assert_eq!(reply.status, 500);
        assert!(reply.json()["detail"].as_str().unwrap().contains("rename one"), "{}", reply.text());
    }
}
