//! Checks that go to the store, although their policies have leases.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{
    block::{Ended, SHORTEST_TTL},
    keeper,
    settle::{Given, settle},
    standing::Standing,
};
use crate::{
    check::{Charge, Check},
    error::Error,
    limiter::{
        core::Core,
        purpose::Purpose,
        sharded::{self, Asked},
    },
    runtime::{deadline::within, drivers::Driver, stalls::Begin},
    store::{Answer, Pending},
    verdict::{Outcome, Verdict},
};

/// Asks the store once, behind the breaker and within `time`.
pub(super) async fn ask(core: &Core, check: &Check, purpose: Purpose, time: Duration) -> Result<Verdict, Error> {
    match core.store.check(check) {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => sharded::answer(core, check, check, purpose, pending, time).await,
    }
}

/// Asks the store, and a second time if this process can give back units that the check needs.
pub(super) fn judge(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Asked {
    let first = match core.store.check(check) {
        Answer::Ready(Ok(verdict)) => verdict,
        Answer::Ready(Err(error)) => return Asked::Judged(Err(error)),
        Answer::Pending(pending) => return judge_later(core, check, purpose, Some(pending)),
    };
    let Some(given) = give_back_missing(core, check, &first) else {
        return Asked::Judged(Ok(heed(core, check, purpose, first)));
    };
    if !given.is_empty() {
        let (core, check) = (Arc::clone(core), check.clone());
        let deadline = core.store.deadline();
        return Asked::Waiting(Box::pin(
            async move { judge_again(&core, &check, purpose, first, given, deadline).await },
        ));
    }
    match core.store.check(check) {
        Answer::Ready(Ok(second)) => Asked::Judged(Ok(heed(core, check, purpose, second))),
        Answer::Ready(Err(error)) => Asked::Judged(Err(error)),
        Answer::Pending(pending) => judge_later(core, check, purpose, Some(pending)),
    }
}

fn judge_later(core: &Arc<Core>, check: &Check, purpose: Purpose, pending: Option<Pending<Verdict>>) -> Asked {
    let (core, check) = (Arc::clone(core), check.clone());
    let deadline = core.store.deadline();
    Asked::Waiting(Box::pin(async move { judge_within(&core, &check, purpose, pending, deadline).await }))
}

/// As [`judge`], within `time`. `pending` is the answer to the check if it was asked already.
pub(super) async fn judge_within(
    core: &Arc<Core>,
    check: &Check,
    purpose: Purpose,
    pending: Option<Pending<Verdict>>,
    time: Duration,
) -> Result<Verdict, Error> {
    let begin = Begin::now(time);
    let first = match pending {
        Some(pending) => sharded::answer(core, check, check, purpose, pending, time).await?,
        None => ask(core, check, purpose, time).await?,
    };
    let Some(given) = give_back_missing(core, check, &first) else { return Ok(heed(core, check, purpose, first)) };
    let spent = begin.map_or(Duration::ZERO, |begin| begin.running(Instant::now()));
    judge_again(core, check, purpose, first, given, time.saturating_sub(spent)).await
}

/// Asks the store again, after the blocks of this process were given back.
async fn judge_again(
    core: &Arc<Core>,
    check: &Check,
    purpose: Purpose,
    first: Verdict,
    given: Given,
    time: Duration,
) -> Result<Verdict, Error> {
    let begin = Begin::now(time);
    for settlement in given {
        // A settlement that has no answer is sent again in the background.
        let _ = within(time, settlement).await;
    }
    let spent = begin.map_or(Duration::ZERO, |begin| begin.running(Instant::now()));
    let left = whole_millis(time.saturating_sub(spent));
    // A second call that takes as long as the settlements would be late: its unknown fate is worse than a denial.
    if left < spent {
        return Ok(heed(core, check, purpose, first));
    }
    let second = ask(core, check, purpose, left).await?;
    Ok(heed(core, check, purpose, second))
}

/// Gives back this process's blocks, if a denied check fits with what they have left. Returns the settlements to await.
fn give_back_missing(core: &Arc<Core>, check: &Check, verdict: &Verdict) -> Option<Given> {
    let ended = take_missing(core, check, verdict);
    (!ended.is_empty()).then(|| settle(core, ended))
}

/// The blocks of this process, if a denied check fits with what they have left.
fn take_missing(core: &Core, check: &Check, verdict: &Verdict) -> Vec<Ended> {
    let now = Instant::now();
    let denied: SmallVec<[&Charge; 1]> = check
        .charges()
        .iter()
        .zip(&verdict.outcomes)
        .filter(|(charge, outcome)| !outcome.fits && (verdict.allowed || !charge.policy.is_shadow()))
        .map(|(charge, _)| charge)
        .collect();
    // A check that has charged something must not be sent again.
    if denied.is_empty() || verdict.charged(check).next().is_some() {
        return Vec::new();
    }
    let helps = |(charge, outcome): (&Charge, &Outcome)| {
        outcome.fits
            || charge.policy.lease().is_some_and(|_| {
                let left = core.leases.left(&charge.key, &charge.policy, now);
                left > 0 && outcome.available.saturating_add(left) >= charge.cost
            })
    };
    if !check.charges().iter().zip(&verdict.outcomes).all(helps) {
        return Vec::new();
    }
    denied.into_iter().flat_map(|charge| core.leases.give_back(&charge.key, &charge.policy, now)).collect()
}

/// Remembers what the store said, and starts a lease for a hot key. Adds to a peek what this process can still spend.
fn heed(core: &Arc<Core>, check: &Check, purpose: Purpose, mut verdict: Verdict) -> Verdict {
    let now = Instant::now();
    if let ([charge], [outcome]) = (check.charges(), &mut verdict.outcomes[..]) {
        if purpose.is_peek() {
            let left = core.leases.left(&charge.key, &charge.policy, now);
            outcome.available = outcome.available.saturating_add(left).min(charge.policy.capacity());
        } else if charge.hold.is_none() {
            let standing = Standing::new(*outcome, verdict.time_us, now);
            let may_start = can_lease(core, charge).then(|| core.store.deadline());
            if let Some((id, wake)) = core.leases.learn(charge, standing, may_start, now) {
                keeper::start(core, id, wake);
            }
        }
    }
    verdict
}

/// Whether blocks of this charge's policy can be taken here.
fn can_lease(core: &Core, charge: &Charge) -> bool {
    let ttl = charge.policy.holds().map_or(Duration::ZERO, |holds| holds.ttl());
    ttl >= SHORTEST_TTL && core.store.has_holds() && Driver::Timers.is_there()
}

/// Whole milliseconds, because timers round up to them, and two of them must not be later than one.
pub(super) fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
