//! Peeks and resets under a policy with shards: both concern all shards.

use std::{
    future::{Future, poll_fn},
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
    let mut calls: Vec<_> =
        charge.of_all_shards().map(|Charge { key, policy, .. }| Box::pin(call(key, policy))).collect();
    let mut answers = Ok(Vec::with_capacity(calls.len()));
    poll_fn(|cx| {
        calls.retain_mut(|call| {
            let Poll::Ready(result) = call.as_mut().poll(cx) else { return true };
            match (&mut answers, result) {
                (Ok(answers), Ok(answer)) => answers.push(answer),
                (Ok(_), Err(error)) => answers = Err(error),
                (Err(_), _) => {}
            }
            false
        });
        if calls.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers
}
