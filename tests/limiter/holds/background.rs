//! Settlements that the store does not answer, and handles that are dropped.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tollgate::store::{HoldChange, SettleAnswer};
use tollgate::{ErrorKind, Limiter, ManualClock, MemoryStore, Policy, limiter::Hold, policy::HoldSettings};

use super::remote_store::{Network, RemoteStore};
use super::{available, tokens, with_holds};
use crate::support::recorder::{RecordedEvents, Recorder, assert_warnings};
use crate::support::stopwatch::Stopwatch;

/// The clock of the store stands still, so no hold ends by itself.
fn remote() -> (Limiter, RemoteStore) {
    let store = RemoteStore::new(MemoryStore::new().with_clock(ManualClock::default()));
    (Limiter::new(store.clone()), store)
}

async fn hold(limiter: &Limiter, policy: &Policy) -> Hold {
    limiter.hold("k", policy, 4).await.unwrap().into_result().unwrap()
}

#[tokio::test]
async fn a_settlement_that_finds_no_store_is_sent_again_until_it_is_answered() {
    for network in [Network::Down, Network::Silent] {
        let (limiter, store) = remote();
        let hold = hold(&limiter, &tokens()).await;
        store.is(network);
        let error = hold.settle(1).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Deadline));
        assert_eq!(available(&limiter, &tokens()).await, 6, "still held");
        store.is(Network::Well);
        store.receives(1).await;
        assert_eq!(available(&limiter, &tokens()).await, 9);
        assert_eq!(store.received(), [HoldChange::Settle(1)]);
    }
}

#[tokio::test(start_paused = true)]
async fn law_15_close_sends_a_settlement_that_has_failed_without_a_pause() {
    let (limiter, store) = remote();
    let hold = hold(&limiter, &tokens()).await;
    store.is(Network::Down);
    hold.settle(1).await.unwrap_err();
    store.is(Network::Well);
    let stopwatch = Stopwatch::start();
    limiter.close().await;
    stopwatch.assert_elapsed(Duration::ZERO);
    assert_eq!(store.received(), [HoldChange::Settle(1)]);
}

#[tokio::test]
async fn a_settlement_of_unknown_fate_is_charged_once() {
    let (recorder, (limiter, store)) = (Recorder::default(), remote());
    let limiter = limiter.with_observer(recorder.clone());
    let hold = hold(&limiter, &tokens()).await;
    store.is(Network::LosesAnswers);
    hold.settle(3).await.unwrap_err();
    store.is(Network::Well);
    store.receives(2).await;
    assert_eq!(available(&limiter, &tokens()).await, 7);
    assert_eq!(recorder.take().holds.len(), 1, "reported once");
}

/// Cancel safety of `settle`: the future is dropped before its first poll, and while it waits.
#[tokio::test]
async fn a_settlement_completes_although_its_future_is_dropped() {
    let (limiter, store) = remote();
    drop(hold(&limiter, &tokens()).await.settle(1));
    store.receives(1).await;
    assert_eq!(available(&limiter, &tokens()).await, 9);

    let second = hold(&limiter, &tokens()).await;
    store.is(Network::Silent);
    assert!(timeout(Duration::from_millis(5), second.settle(2)).await.is_err());
    store.is(Network::Well);
    store.receives(2).await;
    assert_eq!(available(&limiter, &tokens()).await, 7);
}

/// Cancel safety of `renew`: the handle is still good.
#[tokio::test]
async fn a_renewal_may_be_dropped_and_is_not_sent_again() {
    let (limiter, store) = remote();
    let hold = hold(&limiter, &tokens()).await;
    store.is(Network::Silent);
    assert!(timeout(Duration::from_millis(5), hold.renew()).await.is_err());
    assert_eq!(hold.renew().await.unwrap_err().kind(), ErrorKind::Deadline);
    store.is(Network::Well);
    assert_eq!(hold.renew().await.unwrap(), SettleAnswer::Settled);
    assert_eq!(hold.settle(1).await.unwrap(), SettleAnswer::Settled);
    assert_eq!(store.received(), [HoldChange::Renew, HoldChange::Settle(1)]);
}

#[tokio::test]
async fn a_dropped_handle_is_ended_in_the_background() {
    for (released, units) in [(false, 4), (true, 0)] {
        let (limiter, store) = remote();
        let policy = with_holds(10, HoldSettings::new().with_unsettled_released(released));
        drop(hold(&limiter, &policy).await);
        store.receives(1).await;
        assert_eq!(store.received(), [HoldChange::Settle(units)]);
        assert_eq!(available(&limiter, &policy).await, 10 - units);
    }
}

#[test]
fn a_handle_may_outlive_its_runtime() {
    let (limiter, store) = remote();
    let [first, second] = [0, 1].map(|_| {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(hold(&limiter, &tokens()))
    });
    // No runtime at all: the change is kept until the limiter is used in one.
    drop(first);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        assert_eq!(second.settle(1).await.unwrap(), SettleAnswer::Settled);
        store.receives(2).await;
        assert_eq!(available(&limiter, &tokens()).await, 5);
    });
}

/// A thread without a runtime drops the handle of a runtime that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_handle_is_ended_by_its_own_runtime_if_the_thread_has_none() {
    let (limiter, store) = remote();
    let hold = hold(&limiter, &tokens()).await;
    std::thread::spawn(move || drop(hold)).join().unwrap();
    store.receives(1).await;
}

#[test]
fn what_a_runtime_leaves_unsent_another_one_sends() {
    let (limiter, store) = remote();
    store.is(Network::Silent);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        for _ in 0..2 {
            drop(hold(&limiter, &tokens()).await.settle(1));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    });
    drop(runtime);
    store.is(Network::Well);
    Runtime::new().unwrap().block_on(async {
        assert!(!limiter.hold("k", &tokens(), 10).await.unwrap().is_allowed(), "the limiter is in use again");
        store.receives(2).await;
        assert_eq!(available(&limiter, &tokens()).await, 8);
    });
}

#[tokio::test]
async fn a_settlement_is_given_up_after_the_time_to_live() {
    let (recorder, (limiter, store)) = (Recorder::default(), remote());
    let limiter = limiter.with_observer(recorder.clone());
    let policy = tokens().with_holds(HoldSettings::new().with_ttl(Duration::from_millis(100)));
    let hold = hold(&limiter, &policy).await;
    store.is(Network::Down);
    hold.settle(1).await.unwrap_err();
    let ended = async {
        loop {
            match recorder.take().holds.pop() {
                Some(ended) => break ended,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let ended = timeout(Duration::from_secs(10), ended).await.unwrap();
    assert_eq!(ended, ("tokens".to_owned(), 4, 1, "unanswered"));
    store.is(Network::Well);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(store.received(), []);
}

/// More settlements than are kept end while the store is down or silent. Returns ten seconds later, or when as many as
/// `ended` holds were reported.
///
/// The time is paused, but stalls of the machine lengthen a deadline by as much, so the reports may come late.
async fn settle_many(network: Network, ended: usize) -> (RecordedEvents, RemoteStore) {
    let (recorder, (limiter, store)) = (Recorder::default(), remote());
    let limiter = limiter.with_observer(recorder.clone());
    let policy = with_holds(100_000, HoldSettings::new().with_ttl(Duration::from_secs(3_600)));
    let mut holds = Vec::new();
    for _ in 0..10_007 {
        holds.push(limiter.hold("k", &policy, 1).await.unwrap().into_result().unwrap());
    }
    store.is(network);
    holds.into_iter().for_each(|hold| drop(hold.settle(1)));
    let mut events = RecordedEvents::default();
    for second in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let RecordedEvents { holds, warnings, .. } = recorder.take();
        events.holds.extend(holds);
        events.warnings.extend(warnings);
        if second > 10 && events.holds.len() >= ended {
            break;
        }
    }
    (events, store)
}

/// The store may have received all of them, and the oldest are given up.
#[tokio::test(start_paused = true)]
async fn law_6_and_13_a_bounded_number_of_settlements_without_an_answer_is_kept_and_the_rest_is_reported() {
    let (events, _) = settle_many(Network::Silent, 7).await;
    assert!(events.holds.iter().all(|(.., end)| *end == "unanswered"));
    assert_eq!(events.holds.len(), 7);
    // The first warning counts what was given up until then, and a second one within a minute is left out.
    assert_warnings(&events.warnings, &[("ends_given_up", "the ends of ")]);
    let text = events.warnings[0].to_string();
    assert!((1..=7).any(|ends| text.contains(&format!(" {ends} holds were given up"))), "{text}");
}

/// What was never sent is bounded by the open holds.
#[tokio::test(start_paused = true)]
async fn law_15_settlements_that_were_never_sent_are_all_kept_until_the_store_is_back() {
    let (events, store) = settle_many(Network::Down, 0).await;
    assert_eq!((events.holds, events.warnings), (vec![], vec![]));
    store.is(Network::Well);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(store.received().len(), 10_007);
}

/// The runtime has ended, or nothing drives it, while an end waits to be sent again. Nothing waits for the answers to
/// checks and peeks of this store.
#[test]
fn law_15_what_a_runtime_has_left_is_sent_with_the_next_check_or_peek_that_is_answered_at_once() {
    for (is_peek, has_ended) in [(false, true), (true, true), (false, false), (true, false)] {
        let (limiter, store) = remote();
        let first = Builder::new_current_thread().enable_all().build().unwrap();
        first.block_on(async {
            let hold = hold(&limiter, &tokens()).await;
            store.is(Network::Down);
            drop(hold);
            tokio::time::sleep(Duration::from_millis(50)).await;
        });
        let first = Some(first).filter(|_| !has_ended);
        store.is(Network::Well);
        Runtime::new().unwrap().block_on(async {
            let other = Policy::per_minute("other", 10).unwrap();
            // A runtime that is not driven is waited for: its end is due 250 ms after the last attempt.
            for _ in 0..100 {
                match is_peek {
                    true => drop(limiter.peek("other", &other).await.unwrap()),
                    false => drop(limiter.check("other", &other, 1).await.unwrap()),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                if has_ended || !store.received().is_empty() {
                    break;
                }
            }
            store.receives(1).await;
        });
        drop(first);
    }
}

#[tokio::test]
async fn a_panic_in_the_store_ends_no_other_settlement() {
    let (recorder, (limiter, store)) = (Recorder::default(), remote());
    let limiter = limiter.with_observer(recorder.clone());
    let (first, second) = (hold(&limiter, &tokens()).await, hold(&limiter, &tokens()).await);
    store.is(Network::Panics);
    drop(first);
    store.receives(1).await;
    store.is(Network::Well);
    drop(second.settle(1));
    store.receives(2).await;
    assert_eq!(available(&limiter, &tokens()).await, 5);
    assert_warnings(&recorder.take().warnings, &[("ends_given_up", "the ends of 1 holds")]);
}
