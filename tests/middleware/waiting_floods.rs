//! Floods of requests that would wait for too long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, GlobalKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer};

use super::waiting::{start, store};
use crate::support::{app::app, http::get};

/// A store in memory that counts how often it is asked.
#[derive(Clone, Debug)]
struct AskedStore {
    memory: MemoryStore,
    asked: Arc<AtomicUsize>,
}

impl Store for AskedStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.memory.check(check)
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.memory.peek(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }
}

/// One request in ten seconds. Three wait, and further ones would wait for longer than they may.
#[tokio::test(start_paused = true)]
async fn a_flood_of_requests_that_would_wait_for_too_long_asks_the_store_once_a_second() {
    let store = AskedStore { memory: store(), asked: Arc::default() };
    let policy = Policy::new("p", 1, Duration::from_secs(10)).unwrap();
    let limit = RateLimitLayer::new(Limiter::new(store.clone()), policy, GlobalKey);
    let app = app(limit.wait_up_to(Duration::from_secs(25)).validated().unwrap());
    let _waiting = start(&app, 4).await;
    let asked = || store.asked.load(Ordering::SeqCst);
    let before = asked();
    for (second, retry_after) in [(1, "30"), (2, "29"), (3, "28")] {
        for _ in 0..200 {
            let refused = get(&app, "/").await;
            assert_eq!(refused.status, 429);
            // The store would say 10 s at first: it knows nothing of those who wait.
            assert_eq!(refused.header("retry-after").as_deref(), Some(retry_after));
        }
        assert_eq!(asked() - before, second);
        sleep(Duration::from_secs(1)).await;
    }
}
