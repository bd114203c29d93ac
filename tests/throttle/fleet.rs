//! Pauses that several processes share through the store. Here each limiter is a process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{sync::Arc, time::Duration};

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Key, Limiter, MemoryStore, Policy, ThrottleLayer};
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
    let client = process(store).with_shared_pauses().with_cost_fn(|_: &EmptyRequest| 0);
    for _ in 0..1_000 {
        let upstream = Upstream::first(429, &[("retry-after", "4")]);
        within_10_seconds(call(&client.layer(upstream))).await.unwrap();
    }
    tokio::time::sleep(millis(1)).await;
    let sent = received.load(Ordering::SeqCst);
    assert!((1..=64).contains(&sent), "{sent}");
}

/// A store with a bad value under the key of the pause, until it is mended.
#[derive(Clone, Debug)]
struct BadPause {
    store: MemoryStore,
    is_bad: Arc<AtomicBool>,
    received: Arc<AtomicUsize>,
}

impl BadPause {
    fn new() -> Self {
        Self { store: memory(), is_bad: Arc::new(AtomicBool::new(true)), received: Arc::default() }
    }

    fn mend(&self) {
        self.is_bad.store(false, Ordering::SeqCst);
    }
}

impl Store for BadPause {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.received.fetch_add(1, Ordering::SeqCst);
        let mut answer = self.store.check(check);
        if let (true, Answer::Ready(Ok(verdict))) = (self.is_bad.load(Ordering::SeqCst), &mut answer)
            && let [_, pause] = &mut verdict.outcomes[..]
        {
            let year = secs(366 * 86_400).as_micros() as u64;
            (pause.fits, pause.available, pause.retry_after_us) = (false, 0, Some(year));
            verdict.allowed = false;
        }
        answer
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }
}

#[tokio::test(start_paused = true)]
async fn law_14_a_bad_pause_in_the_store_is_an_hour_at_most_and_ends_within_a_second_of_its_repair() {
    let (store, upstream) = (BadPause::new(), Upstream::default());
    let client = process(store.clone()).with_shared_pauses().layer(upstream.clone());
    for _ in 0..1_000 {
        let error = call(&client).await.unwrap_err().to_string();
        let (_, wait) = error.split_once("asked not to be called for another ").unwrap();
        let wait: f64 = wait.split('s').next().unwrap().parse().unwrap();
        assert!(wait <= 3_600.0, "{error}");
        tokio::time::sleep(millis(10)).await;
    }
    let asked = store.received.load(Ordering::SeqCst);
    assert!((5..=12).contains(&asked), "{asked} calls to the store in ten seconds");
    store.mend();
    tokio::time::sleep(millis(1_010)).await;
    assert_eq!(call(&client).await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_pause_of_the_store_are_made_soon_after_its_repair() {
    let (store, upstream) = (BadPause::new(), Upstream::default());
    let client = process(store.clone()).with_shared_pauses().with_max_wait(secs(7_200)).layer(upstream.clone());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        calls.spawn(async move { call(&client).await.unwrap() });
    }
    tokio::time::sleep(millis(10_500)).await;
    let asked = store.received.load(Ordering::SeqCst);
    assert!((5..=12).contains(&asked), "{asked} calls to the store in ten seconds");
    store.mend();
    calls.join_all().await;
    let times = upstream.calls();
    assert!(times[0] >= millis(10_500) && times[19] <= millis(12_000), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= millis(9)), "a herd: {times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_a_pause_in_its_process_at_once_and_in_others_soon() {
    let (store, upstream) = (memory(), Upstream::first(429, &[("retry-after", "1800")]));
    let policy = Policy::per_second("p", 100).unwrap();
    let limiters = [Limiter::new(store.clone()), Limiter::new(store)];
    let clients = limiters.clone().map(|limiter| {
        let layer = ThrottleLayer::new(limiter, policy.clone(), "upstream").with_shared_pauses();
        layer.with_max_wait(secs(3_600)).layer(upstream.clone())
    });
    call(&clients[0]).await.unwrap();
    tokio::time::sleep(millis(10)).await;
    let mut calls = tokio::task::JoinSet::new();
    for client in clients.clone() {
        calls.spawn(async move { call(&client).await.unwrap() });
    }
    tokio::time::sleep(secs(100)).await;
    assert_eq!(upstream.calls().len(), 1, "a pause is no shorter because it is asked for");
    assert!(limiters[0].reset("upstream", &policy).await.unwrap());
    tokio::time::sleep(millis(20)).await;
    assert_eq!(upstream.calls().len(), 2, "the process that resets");
    calls.join_all().await;
    assert!(upstream.calls()[2] <= millis(101_100), "{:?}", upstream.calls());
    assert!(limiters[0].reset("upstream", &policy).await.unwrap());
    assert!(!limiters[0].reset("upstream", &policy).await.unwrap(), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_reset_ends_a_pause_of_a_process_that_shares_none() {
    let upstream = Upstream::first(429, &[("retry-after", "60")]);
    let store = memory();
    let (limiter, policy) = (Limiter::new(store.clone()), Policy::per_second("p", 100).unwrap());
    let client = ThrottleLayer::new(limiter.clone(), policy.clone(), "upstream").layer(upstream.clone());
    call(&client).await.unwrap();
    assert!(call(&client).await.unwrap_err().to_string().contains("asked not to be called"));
    // Nothing but the pause is left.
    assert!(Limiter::new(store).reset("upstream", &policy).await.unwrap());
    assert!(limiter.reset("upstream", &policy).await.unwrap());
    assert_eq!(call(&client).await.unwrap(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_fleet_holds_while_the_store_is_away() {
    let (store, upstream) = (memory(), Upstream::first(429, &[("retry-after", "60")]));
    let first = process(store.clone()).with_shared_pauses().layer(upstream.clone());
    call(&first).await.unwrap();
    tokio::time::sleep(millis(10)).await;
    let silent = SilentAfter { store, answers: 1, received: Arc::default() };
    let second = process(silent).with_shared_pauses().fail_open();
    let second = second.layer(upstream.clone());
    for _ in 0..6 {
        call(&second).await.unwrap_err();
        tokio::time::sleep(millis(500)).await;
    }
    assert_eq!(upstream.calls().len(), 1);
}
