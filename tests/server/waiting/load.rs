//! Waiters on one key, and what becomes of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::observe::{Event, Observer};
use tollgate::{Limiter, Policy, RedisStore};

use crate::support::observed::Batch;

/// Counts the calls of Redis, and the checks in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    calls: Arc<AtomicU64>,
    checks: Arc<AtomicU64>,
}

impl Calls {
    pub(crate) fn count(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }
}

impl Observer for Calls {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(batch) = Batch::of(event) {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.checks.fetch_add(batch.checks as u64, Ordering::Relaxed);
        }
    }
}

/// A limiter that counts its calls of Redis.
pub(crate) async fn limiter(url: &str) -> (Limiter, Calls) {
    let store = RedisStore::builder().deadline(Duration::from_secs(1)).open(url).unwrap();
    let calls = Calls::default();
    let limiter = Limiter::new(store).with_observer(calls.clone());
    limiter.ready().await.unwrap();
    (limiter, calls)
}

/// An admission: which waiter, and when it learned of it.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) waiter: usize,
    pub(crate) at: Instant,
}

/// Starts `waiters` callers in their order, and returns the admissions in the order in which the callers learned of
/// them.
pub(crate) async fn drain(limiter: &Limiter, policy: &Policy, waiters: usize, max_wait: Duration) -> Vec<Admission> {
    let admissions = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for waiter in 0..waiters {
        let acquired = limiter.acquire("upstream", policy, 1).within(max_wait);
        let admissions = Arc::clone(&admissions);
        tasks.spawn(async move {
            let decision = acquired.await.unwrap();
            if decision.is_allowed() {
                admissions.lock().unwrap().push(Admission { waiter, at: Instant::now() });
            }
        });
        // A caller takes its place when its task runs first.
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
    Arc::try_unwrap(admissions).unwrap().into_inner().unwrap()
}
