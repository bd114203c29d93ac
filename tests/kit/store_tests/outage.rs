//! An outage of the store's back end.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{Check, Error, ErrorKind, Policy, store::Verdict};

use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::tested_store::TestedStore;

/// The verdict within the store's deadline, as a limiter waits for it.
async fn within_deadline(store: &TestedStore, check: &Check) -> Result<Verdict, Error> {
    let deadline = store.deadline();
    match timeout(deadline, store.verdict(check)).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Deadline, format!("no answer within {deadline:?}")).charge_unknown()),
    }
}

/// Ends the outage and waits until the store answers peeks again. The time limit of the test ends the wait.
async fn recover(store: &TestedStore, policy: &Policy) -> Tested {
    store.set_outage(false)?;
    while within_deadline(store, &Check::new("probe", policy, 0)).await.is_err() {
        // A back end needs time to restart, and a pool to connect again.
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

pub(super) async fn a_failure_is_an_error_and_the_store_recovers(store: TestedStore) -> Tested {
    let policy = store.per_minute("p", 10)?;
    let _ = store.check("k", &policy, 4).await?;
    store.set_outage(true)?;
    for _ in 0..3 {
        if let Ok(verdict) = within_deadline(&store, &Check::new("k", &policy, 1)).await {
            return Err(NotPassed::Failed(format!("a verdict without the back end: {verdict:?}")));
        }
    }
    recover(&store, &policy).await?;
    let before = store.peek("k", &policy).await?.available().unwrap_or_default();
    ensure_eq!(store.check("k", &policy, 1).await?.available(), before.checked_sub(1), "available after the outage");
    Ok(())
}

pub(super) async fn law_9_a_check_that_failed_is_charged_once_at_most(store: TestedStore) -> Tested {
    let policy = store.per_minute("p", 100)?;
    let _ = store.check("k", &policy, 10).await?;
    store.set_outage(true)?;
    let mut may_be_charged = 0;
    for _ in 0..3 {
        match within_deadline(&store, &Check::new("k", &policy, 7)).await {
            Err(error) if error.may_have_charged() => may_be_charged += 7,
            Err(_) => {}
            Ok(verdict) => return Err(NotPassed::Failed(format!("a verdict without the back end: {verdict:?}"))),
        }
    }
    recover(&store, &policy).await?;
    let spent = 100 - store.peek("k", &policy).await?.available().unwrap_or_default();
    // The outage may have cost the store its counts.
    let most = 10 + may_be_charged;
    ensure!(spent <= most, "{spent} units are charged; with the errors that say `may_have_charged`, at most {most}");
    Ok(())
}
