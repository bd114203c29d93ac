//! Peeks and resets under a policy with shards: both concern all shards.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use crate::{
    check::{Charge, Check},
    error::Error,
    key::Key,
    policy::Policy,
    verdict::{Outcome, Outcomes, Verdict},
};

/// The check of a peek: the charges of all shards.
pub(in crate::limiter) fn all_shards(check: &Check) -> Check {
    Check::of_distinct(check.charges().iter().flat_map(Charge::of_all_shards))
}

/// Turns the verdict on all shards into the verdict on the check of a peek.
pub(super) fn merge(check: &Check, verdict: Verdict) -> Verdict {
    let mut shards = &verdict.outcomes[..];
    let merged = check.charges().iter().filter_map(|charge| {
        let count = usize::try_from(charge.policy.shards()).unwrap_or(usize::MAX).min(shards.len());
        let (own, others) = shards.split_at(count);
        shards = others;
        own.iter().copied().reduce(merge_two)
    });
    let outcomes: Outcomes = merged.collect();
    Verdict { outcomes, ..verdict }
}

/// Turns the verdict on the costs of a check in all shards into the verdict on the check: a cost has to fit one shard.
pub(in crate::limiter) fn merge_costs(check: &Check, verdict: Verdict) -> Verdict {
    let mut shards = verdict.outcomes.iter();
    let outcomes = check.charges().iter().map(|charge| {
        let own: Vec<&Outcome> = shards.by_ref().take(charge.policy.shards() as usize).collect();
        let fits = own.iter().any(|outcome| outcome.fits);
        let wait_us = own.iter().filter_map(|outcome| outcome.retry_after_us).min();
        let merged = own.into_iter().copied().reduce(merge_two).unwrap_or(NO_ROOM);
        Outcome { fits, retry_after_us: wait_us.filter(|_| !fits), ..merged }
    });
    let outcomes: Outcomes = outcomes.collect();
    let decides = check.charges().iter().zip(&outcomes).filter(|(charge, _)| !charge.policy.is_shadow());
    let allowed = decides.into_iter().all(|(_, outcome)| outcome.fits);
    Verdict { allowed, outcomes, ..verdict }
}

/// The outcome of a charge of which a store has said nothing.
const NO_ROOM: Outcome =
    Outcome { fits: false, available: 0, retry_after_us: None, next_us: 0, reset_us: 0, ban_us: 0 };

/// Merges the outcomes of two shards. A cost has to fit into one of them, so the larger room counts.
fn merge_two(one: Outcome, other: Outcome) -> Outcome {
    let reset_us = one.reset_us.max(other.reset_us);
    let outcome = match one.available.cmp(&other.available) {
        std::cmp::Ordering::Greater => one,
        std::cmp::Ordering::Less => other,
        std::cmp::Ordering::Equal => Outcome { next_us: one.next_us.min(other.next_us), ..one },
    };
    Outcome { reset_us, ..outcome }
}

/// Calls the store for each shard of a count at the same time: once for a count without shards.
///
/// # Errors
///
/// The error of any shard, after all shards have been tried.
pub(in crate::limiter) async fn of_each<T, F>(
    key: &Key,
    policy: &Policy,
    call: impl Fn(Key, Policy) -> F,
) -> Result<Vec<T>, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let charge = Charge::new(key.clone(), policy.clone(), 0);
    join(charge.of_all_shards().map(|Charge { key, policy, .. }| Box::pin(call(key, policy)))).await
}

/// Waits for calls at the same time. Returns their answers in the order of the calls.
///
/// # Errors
///
/// The error of any call, after all have been answered.
pub(in crate::limiter) async fn join<T, F>(calls: impl IntoIterator<Item = Pin<Box<F>>>) -> Result<Vec<T>, Error>
where
    F: Future<Output = Result<T, Error>> + ?Sized,
{
    let mut calls: Vec<_> = calls.into_iter().map(|call| (call, None)).collect();
    poll_fn(|cx| {
        let mut is_pending = false;
        for (call, answer) in calls.iter_mut().filter(|(_, answer)| answer.is_none()) {
            match call.as_mut().poll(cx) {
                Poll::Ready(result) => *answer = Some(result),
                Poll::Pending => is_pending = true,
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    calls.into_iter().filter_map(|(_, answer)| answer).collect()
}
