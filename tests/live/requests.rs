//! A request uses the limits that were in force when it started.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, GlobalKey, Key, Limiter, LiveLimits, ManualClock, MemoryStore, Policy};

use super::files::limits;
use crate::support::app::{app, limiter};
use crate::support::{DownStore, http::get};

/// A memory store whose answers arrive when the test says so.
#[derive(Clone, Debug)]
struct SlowStore {
    store: MemoryStore,
    sent: Arc<Mutex<Vec<Check>>>,
    answer: Arc<Notify>,
}

impl Store for SlowStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.sent.lock().unwrap().push(check.clone());
        let (store, check, answer) = (self.store.clone(), check.clone(), Arc::clone(&self.answer));
        Answer::pending(async move {
            answer.notified().await;
            match store.check(&check) {
                Answer::Ready(result) => result,
                Answer::Pending(result) => result.await,
            }
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(3_600)
    }
}

const OLD: &str = "headers = 'draft-11'
    policies.p.rate = '10/min'
    default = { policies = ['p'], cost = 10 }";
const NEW: &str = "headers = 'x-ratelimit'
    policies.q.rate = '20/min'
    default = { policies = ['q'], cost = 1 }";

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_the_store_keeps_its_charges_and_its_header_style() {
    let store = SlowStore {
        store: MemoryStore::new().with_clock(ManualClock::default()),
        sent: Arc::default(),
        answer: Arc::default(),
    };
    let live = LiveLimits::new(limits(OLD));
    let app = app(live.layer(Limiter::new(store.clone()), GlobalKey).unwrap());
    // The second request is denied after the change, in the form of before the change.
    for status in [200, 429] {
        live.replace(limits(OLD)).unwrap();
        let waiting = tokio::spawn({
            let app = app.clone();
            async move { get(&app, "/").await }
        });
        while store.sent.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        live.replace(limits(NEW)).unwrap();
        store.answer.notify_one();
        let reply = waiting.await.unwrap();
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""p";r=0;t=60"#));
        assert_eq!(reply.header("x-ratelimit-limit"), None);
        store.sent.lock().unwrap().clear();
    }
    store.answer.notify_one();
    let reply = get(&app, "/").await;
    assert_eq!(reply.header("ratelimit"), None);
    assert_eq!(reply.header("x-ratelimit-remaining").as_deref(), Some("19"));
}

#[tokio::test]
async fn the_header_style_follows_the_limits() {
    let live = LiveLimits::new(limits(OLD));
    let app = app(live.layer(limiter(), GlobalKey).unwrap());
    assert!(get(&app, "/").await.header("ratelimit").is_some());
    live.replace(limits(NEW)).unwrap();
    let reply = get(&app, "/").await;
    assert_eq!((reply.header("ratelimit"), reply.header("x-ratelimit-limit").as_deref()), (None, Some("20")));
    live.replace(limits("headers = 'none'\npolicies.q.rate = '20/min'\ndefault.policies = ['q']")).unwrap();
    let reply = get(&app, "/").await;
    assert_eq!((reply.header("ratelimit"), reply.header("x-ratelimit-limit")), (None, None));
}

#[tokio::test]
async fn the_failure_policy_follows_the_limits() {
    let on_failure = |policy: &str| {
        limits(&format!(
            "policies.p.rate = '10/min'\ndefault = {{ policies = ['p'], on-store-failure = '{policy}' }}\n\
             routes.'/login'.on-store-failure = 'closed'"
        ))
    };
    let live = LiveLimits::new(on_failure("open"));
    let app = app(live.layer(Limiter::new(DownStore).without_notices(), GlobalKey).unwrap());
    for (policy, status) in [("open", 200), ("closed", 503), ("open", 200)] {
        live.replace(on_failure(policy)).unwrap();
        assert_eq!(get(&app, "/").await.status, status, "{policy}");
        assert_eq!(get(&app, "/login").await.status, 503, "{policy}");
    }
}
