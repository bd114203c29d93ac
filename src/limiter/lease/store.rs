//! Checks that go to the store, although this process may hold blocks of their counts; and the keeper of a lease: the
//! task that requests its blocks and settles them.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::blocks::{FinishedBlock, SHORTEST_TTL, is_made};
use super::state::{Actions, Asked, Step};
use super::waiter::{Delivery, LastOutcome};
use super::{Given, settle, settle_later, settled, sweep, table::LeaseId};
use crate::check::{Charge, Check};
use crate::limiter::core::{Core, OneCall};
use crate::runtime::{drivers::Driver, stalls::Budget};
use crate::store::{Answer, Pending};
use crate::verdict::{Outcome, Source, Verdict};
use crate::{calls::Purpose, error::Error};

/// Asks the store, and a second time if this process can give back units that the check needs.
pub(in crate::limiter) fn judge(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Answer<Verdict> {
    let deadline = core.calls.store.deadline();
    judge_started(core, check, purpose, OneCall::start(core, check, purpose, deadline))
}

/// As [`judge`], for a key that has no lease and is not hot. `is_cold` becomes true if the answer is pending and the
/// store's alone: its caller asks [`on_cold_verdict`] about the verdict.
pub(super) fn judge_cold(core: &Arc<Core>, check: &Check, purpose: Purpose, is_cold: &mut bool) -> Answer<Verdict> {
    match OneCall::start(core, check, purpose, core.calls.store.deadline()) {
        OneCall::Store { beside: None, pending } => {
            *is_cold = true;
            core.holds.look_after();
            sweep(core);
            Answer::Pending(pending)
        }
        call => judge_started(core, check, purpose, call),
    }
}

/// What becomes of the verdict on a check that was `sent` as any other: if it is denied and this process has got blocks
/// of its counts meanwhile, they are given back and the store is asked once more.
pub(in crate::limiter) fn on_cold_verdict(
    core: &Arc<Core>,
    check: &Check,
    purpose: Purpose,
    verdict: Verdict,
    sent: Instant,
) -> Answer<Verdict> {
    let Some(given) = give_back_missing(core, check, &verdict) else { return Answer::Ready(Ok(verdict)) };
    let (core, check) = (Arc::clone(core), check.clone());
    let left = core.calls.store.deadline().saturating_sub(sent.elapsed());
    Answer::Pending(Pending::new(async move { judge_again(&core, &check, purpose, verdict, given, left).await }))
}

/// Judges a check by a call that was started, and a second one if that helps.
fn judge_started(core: &Arc<Core>, check: &Check, purpose: Purpose, call: OneCall) -> Answer<Verdict> {
    let deadline = core.calls.store.deadline();
    let first = match call {
        OneCall::Judged(Ok(verdict)) => verdict,
        OneCall::Judged(Err(error)) => return Answer::Ready(Err(error)),
        call => return judge_later(core, check, purpose, call),
    };
    let Some(given) = give_back_missing(core, check, &first) else {
        return Answer::Ready(Ok(observe(core, check, purpose, first, None)));
    };
    if !given.is_empty() {
        let (core, check) = (Arc::clone(core), check.clone());
        return Answer::Pending(Pending::new(async move {
            judge_again(&core, &check, purpose, first, given, deadline).await
        }));
    }
    match OneCall::start(core, check, purpose, deadline) {
        OneCall::Judged(Ok(second)) => Answer::Ready(Ok(observe(core, check, purpose, second, None))),
        OneCall::Judged(Err(error)) => Answer::Ready(Err(error)),
        call => judge_later(core, check, purpose, call),
    }
}

fn judge_later(core: &Arc<Core>, check: &Check, purpose: Purpose, call: OneCall) -> Answer<Verdict> {
    let (core, check) = (Arc::clone(core), check.clone());
    let deadline = core.calls.store.deadline();
    Answer::Pending(Pending::new(async move { judge_call(&core, &check, purpose, call, deadline).await }))
}

/// As [`judge`], within `time`.
pub(super) async fn judge_within(
    core: &Arc<Core>,
    check: &Check,
    purpose: Purpose,
    time: Duration,
) -> Result<Verdict, Error> {
    judge_call(core, check, purpose, OneCall::start(core, check, purpose, time), time).await
}

async fn judge_call(
    core: &Arc<Core>,
    check: &Check,
    purpose: Purpose,
    call: OneCall,
    time: Duration,
) -> Result<Verdict, Error> {
    // What ended runtimes have left, and those that stand still, reaches the store with this check.
    core.holds.look_after();
    sweep(core);
    let budget = Budget::of(time);
    let first = call.answer(core, check, purpose, time).await?;
    let took = budget.spent();
    let Some(given) = give_back_missing(core, check, &first) else {
        return Ok(observe(core, check, purpose, first, Some(took)));
    };
    judge_again(core, check, purpose, first, given, time.saturating_sub(took)).await
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
    let budget = Budget::of(time);
    settled(given, time).await;
    let spent = budget.spent();
    let left = budget.left_after(spent);
    // A second call that takes as long as the settlements would be late: its unknown fate is worse than a denial.
    if left < spent {
        return Ok(observe(core, check, purpose, first, None));
    }
    let second = OneCall::start(core, check, purpose, left).answer(core, check, purpose, left).await?;
    Ok(observe(core, check, purpose, second, Some(budget.spent().saturating_sub(spent))))
}

/// Gives back this process's blocks, if a denied check fits with what they have left. Returns the settlements to await
/// before the check is sent again. `None` if it is not sent again: then the next check may find the units.
fn give_back_missing(core: &Arc<Core>, check: &Check, verdict: &Verdict) -> Option<Given> {
    let ended = take_missing(core, check, verdict);
    if ended.is_empty() {
        return None;
    }
    let given = settle(core, ended);
    (!core.calls.may_hold_in_part(check)).then_some(given)
}

/// The blocks of this process, if a denied check fits with what they have left.
fn take_missing(core: &Core, check: &Check, verdict: &Verdict) -> Vec<FinishedBlock> {
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
    let now = Instant::now();
    let helps = |(charge, outcome): (&Charge, &Outcome)| {
        let left = || core.leases.left(&charge.key, &charge.policy, now);
        let fits_with = |left: u64| left > 0 && outcome.available.saturating_add(left) >= charge.cost;
        outcome.fits || fits_with(left())
    };
    if !check.charges().iter().zip(&verdict.outcomes).all(helps) {
        return Vec::new();
    }
    denied.into_iter().flat_map(|charge| core.leases.give_back(&charge.key, &charge.policy, now)).collect()
}

/// Remembers what the store said and how long the call `took`, if that is known. Starts a lease for a hot key. Adds to
/// a peek what this process can still spend.
fn observe(core: &Arc<Core>, check: &Check, purpose: Purpose, mut verdict: Verdict, took: Option<Duration>) -> Verdict {
    let now = Instant::now();
    if let ([charge], [outcome]) = (check.charges(), &mut verdict.outcomes[..]) {
        if purpose.is_peek() {
            let left = core.leases.left(&charge.key, &charge.policy, now);
            if left > 0 {
                outcome.available = outcome.available.saturating_add(left).min(charge.policy.capacity());
            }
        } else if charge.hold.is_none() && charge.policy.lease().is_some() {
            let standing = LastOutcome::new(*outcome, verdict.time_us, now);
            let took = took.filter(|_| verdict.source == Source::Store);
            let may_start = can_lease(core, charge).then(|| core.calls.store.deadline());
            if let Some((id, wake)) = core.leases.record(charge, standing, took, may_start, now) {
                if let Some(observer) = &core.calls.observer {
                    core.leases.watch(&id, observer);
                }
                start(core, id, wake);
            }
        }
    }
    verdict
}

/// Adds to a peek at costs what this process can still spend.
pub(in crate::limiter) fn add_left(core: &Arc<Core>, check: &Check, verdict: &mut Verdict) {
    let now = Instant::now();
    if let ([charge], [outcome]) = (check.charges(), &mut verdict.outcomes[..]) {
        let left = core.leases.left(&charge.key, &charge.policy, now);
        outcome.available = outcome.available.saturating_add(left).min(charge.policy.capacity());
        if left > 0 && outcome.available >= charge.cost {
            (outcome.fits, outcome.retry_after_us, verdict.allowed) = (true, None, true);
        }
    }
}

/// Whether blocks of this charge's policy can be taken here.
fn can_lease(core: &Core, charge: &Charge) -> bool {
    let ttl = charge.policy.holds().map_or(Duration::ZERO, |holds| holds.ttl());
    ttl >= SHORTEST_TTL
        && core.calls.store.has_holds()
        && core.calls.may_take_blocks(charge)
        && Driver::Timers.is_there()
}

struct Keeper {
    core: Arc<Core>,
    id: LeaseId,
    wake: Arc<Notify>,
    /// The block that was requested and not received.
    on_its_way: Option<FinishedBlock>,
    /// Whether the lease has ended.
    is_done: bool,
}

/// Starts the keeper of a lease on the current runtime.
pub(super) fn start(core: &Arc<Core>, id: LeaseId, wake: Arc<Notify>) {
    let keeper = Keeper { core: Arc::clone(core), id, wake, on_its_way: None, is_done: false };
    tokio::spawn(keeper.run());
}

impl Keeper {
    async fn run(mut self) {
        loop {
            // From before the step, so that a close waits for what the step decides.
            let busy = self.core.leases.busy();
            match self.core.leases.step(&self.id, Instant::now()) {
                None => break,
                Some(Step::Sleep(until)) => {
                    drop(busy);
                    let _ = timeout_at(until, self.wake.notified()).await;
                }
                Some(Step::Actions(Actions { ended, deliveries, ask, is_over })) => {
                    deliveries.into_iter().for_each(Delivery::send);
                    drop(settle(&self.core, ended));
                    sweep(&self.core);
                    if let Some(units) = ask {
                        self.ask(units).await;
                    }
                    drop(busy);
                    if is_over {
                        break;
                    }
                    // A store that answers at once must not keep the thread from the checks that were served.
                    tokio::task::yield_now().await;
                }
            }
        }
        self.is_done = true;
    }

    /// Requests a block.
    async fn ask(&mut self, units: u64) {
        let LeaseId { key, block_policy, .. } = &self.id;
        // From before the request, because the time-to-live counts from a later instant.
        let sent = Instant::now();
        let check = Check::hold(key.clone(), block_policy, units);
        if check.validate().is_err() {
            return;
        }
        let (Some(charge), Some((_, hold, _))) = (check.charges().first(), check.holds().next()) else { return };
        let calls = &self.core.calls;
        if !calls.may_take_blocks(charge) || !calls.held.request(&hold, sent) {
            return self.core.leases.decline(&self.id, sent).into_iter().for_each(Delivery::send);
        }
        if !self.core.leases.request(&self.id, &hold, units) {
            return calls.held.end(&hold);
        }
        self.on_its_way = Some(FinishedBlock::uncertain(hold.clone(), units));
        let deadline = calls.store.deadline();
        let call = OneCall::start(&self.core, &check, Purpose::CHECK, deadline);
        let result = call.answer(&self.core, &check, Purpose::CHECK, deadline).await;
        let may_be_held = match &result {
            Ok(verdict) => is_made(verdict),
            Err(error) => error.may_have_charged(),
        };
        if !may_be_held {
            self.core.calls.held.end(&hold);
        }
        if let Ok(verdict) = &result {
            self.core.calls.on_answer(verdict);
        }
        match self.core.leases.receive(&self.id, Asked { hold, units, sent }, result, Instant::now()) {
            Ok(deliveries) => deliveries.into_iter().for_each(Delivery::send),
            Err(block) if may_be_held => drop(settle(&self.core, vec![block])),
            Err(_) => {}
        }
        self.on_its_way = None;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.is_done {
            let ended = match self.core.leases.abandon(&self.id, Instant::now()) {
                Some(remains) => remains.into_ended(),
                // It was released when the lease ended, but the store may have made it later.
                None => self.on_its_way.take().into_iter().collect(),
            };
            settle_later(&self.core, ended);
        }
    }
}
