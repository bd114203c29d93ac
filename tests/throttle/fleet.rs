//! Pauses that several processes share through the store. Here each limiter is a process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tollgate::{
    Check, Key, Limiter, MemoryStore, Policy, ThrottleLayer,
    store::{Answer, Store, Verdict},
};
use tower::Layer;

use super::upstream::{Upstream, call, memory, millis, secs};
use crate::support::counting::{EmptyRequest, within_10_seconds};

fn process(store: impl Store) -> ThrottleLayer {
    ThrottleLayer::new(Limiter::new(store), Policy::per_second("p", 100).unwrap(), "upstream")
}

#[tokio::test(start_paused = true)]
async fn a_shared_pause_holds_back_the_processes_that_share_pauses() {
    let upstream = Upstream::first(429, &[("retry-after", "4")]);
    let store = memory();
    let (first, second) = (process(store.clone()).with_shared_pauses(), process(store.clone()).with_shared_pauses());
    let alone = process(store);
    call(&first.layer(upstream.clone())).await.unwrap();
    tokio::time::sleep(millis(10)).await;
    call(&alone.layer(upstream.clone())).await.unwrap();
    call(&second.layer(upstream.clone())).await.unwrap();
    call(&first.layer(upstream.clone())).await.unwrap();
    let times = upstream.calls();
    assert_eq!(times[1], millis(10), "a process that shares no pauses obeys its own alone");
    assert!(times[2] >= secs(4) && times[2] < millis(4_200), "{times:?}");
    assert!(times[3] >= secs(4) && times[3] < millis(4_200), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn by_default_a_pause_stays_in_its_process() {
    let upstream = Upstream::first(429, &[("retry-after", "4")]);
    let store = memory();
    call(&process(store.clone()).layer(upstream.clone())).await.unwrap();
    tokio::time::sleep(millis(10)).await;
    call(&process(store).with_shared_pauses().layer(upstream.clone())).await.unwrap();
    assert_eq!(upstream.calls(), [secs(0), millis(10)]);
}

/// A store that answers its first checks and is silent afterwards.
#[derive(Debug)]
struct SilentAfter {
    store: MemoryStore,
    answers: usize,
    received: Arc<AtomicUsize>,
}

impl Store for SilentAfter {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        match self.received.fetch_add(1, Ordering::SeqCst) < self.answers {
            true => self.store.check(check),
            false => Answer::pending(std::future::pending()),
        }
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }

    fn deadline(&self) -> Duration {
        secs(5)
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_does_not_wait_until_its_pause_is_shared() {
    let upstream = Upstream::first(429, &[("retry-after", "4")]);
    let received = Arc::new(AtomicUsize::new(0));
    let store = SilentAfter { store: memory(), answers: 1, received: Arc::clone(&received) };
    let client = process(store).with_shared_pauses().layer(upstream.clone());
    assert_eq!(call(&client).await.unwrap(), 429);
    assert_eq!(upstream.elapsed(), secs(0));
    tokio::time::sleep(millis(1)).await;
    assert_eq!(received.load(Ordering::SeqCst), 2, "the store was told");
}

#[tokio::test(start_paused = true)]
async fn the_pauses_on_their_way_to_the_store_are_bounded() {
    let received = Arc::new(AtomicUsize::new(0));
    let store = SilentAfter { store: memory(), answers: 0, received: Arc::clone(&received) };
    let client = process(store).with_shared_pauses().with_cost(|_: &EmptyRequest| 0);
    for _ in 0..1_000 {
        let upstream = Upstream::first(429, &[("retry-after", "4")]);
        within_10_seconds(call(&client.layer(upstream))).await.unwrap();
    }
    tokio::time::sleep(millis(1)).await;
    let sent = received.load(Ordering::SeqCst);
    assert!((1..=64).contains(&sent), "{sent}");
}
