//! Panics beside a check: of a sibling in its task, and of an observer.

use std::{
    future::pending,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use tokio::runtime;
use tollgate::{
    Limiter, Policy,
    observe::{BreakerChange, BreakerState, Observer},
};

use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

fn policy() -> Policy {
    Policy::per_hour("p", 1_000_000).unwrap()
}

struct Panics;

impl Observer for Panics {
    fn on_breaker_change(&self, change: &BreakerChange) {
        assert!(change.to != BreakerState::Open, "an observer that panics");
    }
}

/// Opens the breaker, sends a probe, and drops it while its task unwinds; then lets the store answer.
fn survives(observed: bool) {
    let (sender, ended) = mpsc::channel();
    // A thread of its own: what this is about would block it for ever.
    thread::spawn(move || {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let store = UnhealthyStore::new(UNAVAILABLE);
        let limiter = Limiter::new(store.clone());
        let limiter = if observed { limiter.with_observer(Panics) } else { limiter };
        runtime.block_on(async {
            let check = |limiter: &Limiter| limiter.check("k", &policy(), 1);
            while !limiter.is_breaker_open() {
                // The observer's panic is the request's.
                let check = check(&limiter);
                let _ = tokio::spawn(async move { check.await.is_ok() }).await;
            }
            store.set_health(Health::Silent);
            let before = store.sent();
            while store.sent() == before {
                let probe = check(&limiter);
                let panics = async {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    panic!("a sibling of the probe");
                };
                let task = tokio::spawn(async move { tokio::join!(probe, panics, pending::<()>()) });
                assert!(task.await.is_err());
            }
            store.set_health(Health::Healthy);
            let start = Instant::now();
            while check(&limiter).await.is_err() {
                assert!(start.elapsed() < Duration::from_secs(5), "still open");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        sender.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(20)).expect("the limiter is frozen");
}

#[test]
fn law_14_a_panic_beside_a_probe_does_not_freeze_the_process() {
    survives(false);
}

#[test]
fn law_14_an_observer_that_panics_while_a_probe_unwinds_does_not_end_the_process() {
    survives(true);
}
