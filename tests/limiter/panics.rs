//! Panics in the task of a check, and panics of an observer.

use std::time::{Duration, Instant};
use std::{future::pending, sync::mpsc, thread};

use tokio::runtime;
use tollgate::observe::{Event, Observer};
use tollgate::{Limiter, Policy};

use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

fn policy() -> Policy {
    Policy::per_hour("p", 1_000_000).unwrap()
}

/// Panics when the breaker opens.
struct PanickingObserver;

impl Observer for PanickingObserver {
    fn on_event(&self, event: &Event<'_>) {
        assert!((event.name(), event.outcome()) != ("breaker_change", "open"), "the observer panics");
    }
}

/// Opens the breaker, drops a probe while its task unwinds, and asserts that the limiter recovers with the store.
fn assert_recovers(observed: bool) {
    let (sender, ended) = mpsc::channel();
    // A deadlock would block the thread for ever, so the test waits for it with a timeout.
    thread::spawn(move || {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = UnhealthyStore::new(UNAVAILABLE);
        let limiter = Limiter::new(store.clone());
        let limiter = if observed { limiter.with_observer(PanickingObserver) } else { limiter };
        runtime.block_on(async {
            let check = |limiter: &Limiter| limiter.check("k", &policy(), 1);
            while !limiter.is_breaker_open() {
                // A panic of the observer ends the task of the check.
                let check = check(&limiter);
                let _ = tokio::spawn(async move { check.await.is_ok() }).await;
            }
            store.set_health(Health::Silent);
            let before = store.sent();
            while store.sent() == before {
                let probe = check(&limiter);
                let panics = async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    panic!("a future beside the probe panics");
                };
                let task = tokio::spawn(async move { tokio::join!(probe, panics, pending::<()>()) });
                assert!(task.await.is_err());
            }
            store.set_health(Health::Healthy);
            let start = Instant::now();
            while check(&limiter).await.is_err() {
                assert!(start.elapsed() < Duration::from_secs(5), "the breaker stays open");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        sender.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(20)).expect("the limiter deadlocked");
}

#[test]
fn law_14_a_panic_in_the_task_of_a_probe_does_not_block_the_process() {
    assert_recovers(false);
}

#[test]
fn law_14_an_observer_that_panics_while_a_probe_unwinds_does_not_abort_the_process() {
    assert_recovers(true);
}
