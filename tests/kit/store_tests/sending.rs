//! Answers that are not awaited. A store that answers without waiting passes these tests.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tollgate::{Check, store::Answer};

use crate::failure::{Tested, ensure, ensure_eq};
use crate::tested_store::TestedStore;

/// Gives tasks that the store may have started a chance to run.
async fn let_others_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn law_9_an_answer_that_is_never_polled_charges_nothing(store: TestedStore) -> Tested {
    let policy = store.per_minute("p", 10)?;
    let charged = match store.send(&Check::new("k", &policy, 3)) {
        Answer::Ready(_) => 3,
        Answer::Pending(_) => 0,
    };
    let_others_run().await;
    ensure_eq!(store.peek("k", &policy).await?.available(), Some(10 - charged), "available");
    Ok(())
}

pub(super) async fn law_9_an_answer_that_is_dropped_charges_once_at_most(store: TestedStore) -> Tested {
    let policy = store.per_minute("p", 10)?;
    if let Answer::Pending(mut verdict) = store.send(&Check::new("k", &policy, 3)) {
        // One poll, after which the check may have been sent.
        let _ = poll_fn(|cx| Poll::Ready(Pin::new(&mut verdict).poll(cx).is_ready())).await;
    }
    let_others_run().await;
    let available = store.peek("k", &policy).await?.available();
    let is_charged_once_at_most = matches!(available, Some(7 | 10));
    ensure!(is_charged_once_at_most, "a check of 3 units left {available:?} of 10 when its answer was dropped");
    Ok(())
}
