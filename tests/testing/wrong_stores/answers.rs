//! Stores that answer at the wrong time, twice, not at all, or without their back end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{thread, time::Duration};

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, ManualClock, Policy};
use tollgate_testing::{Fixture, TestOutcome, store_suite};

use super::{Wrong, fixture_refused_by, refused_by};

/// Sends a check again when it is dropped.
struct Resend(Wrong, Option<Check>);

impl Drop for Resend {
    fn drop(&mut self) {
        if let Some(check) = self.1.take() {
            self.0.judge(&check);
        }
    }
}

#[tokio::test]
async fn a_store_that_replays_a_check_whose_answer_is_dropped() {
    let why = refused_by("law_9_an_answer_that_is_dropped_charges_once_at_most", |store, check| {
        let (store, check) = (store.clone(), check.clone());
        Answer::pending(async move {
            let mut resend = Resend(store.clone(), Some(check.clone()));
            let verdict = store.judge(&check);
            tokio::task::yield_now().await;
            resend.1 = None;
            Ok(verdict)
        })
    });
    assert!(why.await.contains("left Some(4) of 10"));
}

#[tokio::test]
async fn a_store_that_charges_before_its_answer_is_polled() {
    refused_by("law_9_an_answer_that_is_never_polled_charges_nothing", |store, check| {
        let verdict = store.judge(check);
        Answer::pending(async move { Ok(verdict) })
    })
    .await;
}

#[tokio::test]
async fn a_store_that_panics() {
    let why = refused_by("law_3_every_charge_of_a_check_is_charged", |store, check| {
        assert!(check.charges().len() < 2, "one charge is enough");
        Answer::Ready(Ok(store.judge(check)))
    });
    assert!(why.await.contains("panicked: one charge is enough"));
}

/// Asserts that a store fails a test at the time limit although nothing else ends its answer.
async fn has_no_end(check: fn(&Wrong, &Check) -> Answer<Verdict>) {
    let name = "a_cost_above_the_limit_never_fits_and_has_no_retry_after";
    let fixture = move || async move {
        let clock = ManualClock::default();
        Fixture::new(Wrong::new(clock.clone(), check), clock)
    };
    let report = store_suite(fixture).only(name).with_time_limit(Duration::from_millis(50)).run().await;
    let Some(TestOutcome::Failed(why)) = report.outcome(name) else { panic!("{report}") };
    assert!(why.contains("no end within 50ms; the last call of the store: check of 11 under \"p\""), "{why}");
}

fn is_above_the_limit(check: &Check) -> bool {
    check.charges().iter().any(|charge| charge.cost > charge.policy.capacity())
}

#[tokio::test]
async fn a_store_that_never_answers() {
    has_no_end(|store, check| match is_above_the_limit(check) {
        true => Answer::pending(std::future::pending()),
        false => Answer::Ready(Ok(store.judge(check))),
    })
    .await;
}

/// The caller's paused time must not end the test early or keep it from ending.
#[tokio::test(start_paused = true)]
async fn a_store_that_blocks_its_thread() {
    has_no_end(|store, check| {
        while is_above_the_limit(check) {
            thread::park();
        }
        Answer::Ready(Ok(store.judge(check)))
    })
    .await;
}

/// A store whose back end can be down.
#[derive(Debug)]
struct WithoutBackEnd {
    store: Wrong,
    is_down: Arc<AtomicBool>,
    /// Checks that failed. `None` if the store answers them by itself.
    failed: Option<Mutex<Vec<Check>>>,
}

impl WithoutBackEnd {
    fn fixture(clock: ManualClock, failed: Option<Mutex<Vec<Check>>>) -> Fixture {
        let is_down = Arc::new(AtomicBool::new(false));
        let store = Wrong::new(clock.clone(), |store, check| Answer::Ready(Ok(store.judge(check))));
        Fixture::new(Self { store, is_down: Arc::clone(&is_down), failed }, clock)
            .with_outage(move |down| is_down.store(down, Ordering::SeqCst))
    }
}

impl Store for WithoutBackEnd {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let Some(failed) = &self.failed else {
            return Answer::Ready(Ok(self.store.judge(check)));
        };
        let mut failed = failed.lock().unwrap();
        if self.is_down.load(Ordering::SeqCst) {
            failed.push(check.clone());
            return Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "connection refused")));
        }
        for check in failed.drain(..) {
            self.store.judge(&check);
        }
        Answer::Ready(Ok(self.store.judge(check)))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }
}

#[tokio::test]
async fn a_store_that_answers_without_its_back_end() {
    let name = "a_failure_is_an_error_and_the_store_recovers";
    let why = fixture_refused_by(name, |clock| WithoutBackEnd::fixture(clock, None));
    assert!(why.await.contains("a verdict without the back end"));
}

#[tokio::test]
async fn a_store_that_replays_failed_checks_when_its_back_end_is_back() {
    let name = "law_9_a_check_that_failed_is_charged_once_at_most";
    let why = fixture_refused_by(name, |clock| WithoutBackEnd::fixture(clock, Some(Mutex::default())));
    assert!(why.await.contains("31 units are charged"));
}
