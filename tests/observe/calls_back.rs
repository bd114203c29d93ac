//! Observers that check a limit of the limiter that calls them.

use std::sync::{Arc, OnceLock, mpsc};
use std::{thread, time::Duration};

use tollgate::{Limiter, MemoryStore, Policy, observe};

/// The fallback counts what a check spends from a block, and drops another count for it. A deadlock keeps its thread,
/// so the test has one of its own.
#[test]
fn an_observer_of_an_eviction_may_check_the_key_whose_lease_has_caused_it() {
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let leased = Policy::per_minute("leased", 1_000_000).unwrap().with_lease(1_000);
        let plain = Policy::per_minute("plain", 1_000_000).unwrap();
        let limiter = Arc::new(OnceLock::<Limiter>::new());
        let (own, policy) = (Arc::clone(&limiter), leased.clone());
        let (sender, evictions) = mpsc::channel();
        let observer = observe::from_fn(move |event| {
            if let ("eviction", Some(limiter)) = (event.name(), own.get()) {
                let _ = limiter.try_check("hot", &policy, 1);
                sender.send(()).unwrap();
            }
        });
        let local = MemoryStore::with_capacity(1).unwrap();
        let limiter = limiter
            .get_or_init(|| Limiter::new(MemoryStore::new()).with_local_fallback(local, 1).with_observer(observer));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..100 {
                for _ in 0..10 {
                    assert!(limiter.check("hot", &leased, 1).await.unwrap().is_allowed());
                }
                assert!(limiter.check("other", &plain, 1).await.unwrap().is_allowed());
                // Lets the keeper of the lease take a block.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        done.send(evictions.try_iter().count()).unwrap();
    });
    let evictions = finished.recv_timeout(Duration::from_secs(10)).expect("the checks end");
    assert!(evictions > 0, "the fallback has room for one key");
}
