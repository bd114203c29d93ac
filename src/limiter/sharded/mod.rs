//! Checks under policies with shards: one shard, and one other if that is full.
//!
//! Stores know nothing of shards: a shard is an ordinary charge, with a key and a policy of its own. The first attempt
//! asks one shard of each policy, which the checks of a limiter take in turn. If only shards deny it, a second attempt
//! asks others, chosen at random, within what is left of the deadline. It follows a verdict, so nothing is sent twice.
//! The decision, the observers and the local fallback get the check as its caller has made it.
//!
//! `turns` says which shard the first attempt asks.

mod turns;

use std::future::{Future, poll_fn};
use std::{hash::BuildHasher, pin::Pin, sync::Arc, task::Poll, time::Duration};

use smallvec::SmallVec;

use crate::calls::{Calls, CheckCall, Purpose};
use crate::check::{Charge, Check};
use crate::runtime::{random::RandomState, stalls::Budget};
use crate::store::{Answer, Pending};
use crate::verdict::{Outcome, Outcomes, Verdict};
use crate::{error::Error, key::Key, policy::Policy};

pub(super) use self::turns::ShardTurns;

/// The state of a check after one attempt.
enum Step {
    Judged(Result<Verdict, Error>),
    Unanswered(Unanswered),
}

/// An attempt that waits for its verdict.
struct Unanswered {
    attempt: Attempt,
    pending: Pending<Verdict>,
    /// The verdict on the first attempt, if this is the second one.
    denial: Option<Verdict>,
}

/// Asks the store for a check, or for a peek, under policies with shards, within `time`.
pub(super) fn ask(
    calls: &Arc<Calls>,
    turns: &ShardTurns,
    check: &Check,
    purpose: Purpose,
    time: Duration,
) -> Answer<Verdict> {
    if purpose.is_peek() {
        return ask_all(calls, check, purpose, time);
    }
    let attempt = Attempt::first(check, turns);
    let step = match calls.store.check(&attempt.sent) {
        Answer::Ready(Ok(verdict)) => ask_again(calls, check, &attempt, verdict),
        Answer::Ready(Err(error)) => Step::Judged(Err(error)),
        Answer::Pending(pending) => Step::Unanswered(Unanswered { attempt, pending, denial: None }),
    };
    match step {
        Step::Judged(result) => Answer::Ready(result),
        Step::Unanswered(unanswered) => {
            Answer::Pending(Pending::new(judge(Arc::clone(calls), check.clone(), purpose, unanswered, time)))
        }
    }
}

/// Makes the second attempt, if the verdict on the first one is a denial that another shard may change.
fn ask_again(calls: &Calls, check: &Check, first: &Attempt, verdict: Verdict) -> Step {
    if calls.may_hold_in_part(check) {
        return Step::Judged(Ok(verdict));
    }
    let Some(attempt) = first.second(check, &verdict) else { return Step::Judged(Ok(verdict)) };
    match calls.store.check(&attempt.sent) {
        Answer::Ready(result) => Step::Judged(result.map(|second| milder(verdict, second))),
        Answer::Pending(pending) => Step::Unanswered(Unanswered { attempt, pending, denial: Some(verdict) }),
    }
}

/// Waits for the verdicts of one or two attempts, together within one deadline.
async fn judge(
    calls: Arc<Calls>,
    check: Check,
    purpose: Purpose,
    unanswered: Unanswered,
    deadline: Duration,
) -> Result<Verdict, Error> {
    let budget = Budget::of(deadline);
    let Unanswered { attempt, pending, denial } = unanswered;
    let verdict = CheckCall::new(pending).within(deadline).answer(&calls, &attempt.sent, &check, purpose).await?;
    if let Some(denial) = denial {
        return Ok(milder(denial, verdict));
    }
    let spent = budget.spent();
    let left = budget.left_after(spent);
    // A second attempt that takes as long as the first one would be late: its unknown fate is worse than a denial.
    if left < spent {
        return Ok(verdict);
    }
    match ask_again(&calls, &check, &attempt, verdict) {
        Step::Judged(result) => result,
        Step::Unanswered(Unanswered { attempt, pending, denial }) => {
            let second = CheckCall::new(pending).within(left).answer(&calls, &attempt.sent, &check, purpose).await?;
            Ok(match denial {
                Some(denial) => milder(denial, second),
                None => second,
            })
        }
    }
}

/// Asks all shards. A peek does.
fn ask_all(calls: &Arc<Calls>, check: &Check, purpose: Purpose, time: Duration) -> Answer<Verdict> {
    let sent = all_shards(check);
    match calls.store.check(&sent) {
        Answer::Ready(result) => Answer::Ready(result.map(|verdict| merge(check, verdict))),
        Answer::Pending(pending) => {
            let (calls, check) = (Arc::clone(calls), check.clone());
            Answer::Pending(Pending::new(async move {
                let verdict = CheckCall::new(pending).within(time).answer(&calls, &sent, &check, purpose).await?;
                Ok(merge(&check, verdict))
            }))
        }
    }
}

/// A check for which a shard is chosen wherever a policy has shards.
struct Attempt {
    /// What the store gets. The charges are in the order of the check's.
    sent: Check,
    /// The number of each charge's shard; 0 without shards.
    numbers: SmallVec<[u32; 1]>,
}

impl Attempt {
    /// Chooses the shard of each charge whose turn it is.
    fn first(check: &Check, turns: &ShardTurns) -> Self {
        let turn = turns.next();
        Self::of(check, |index, Charge { policy, cost, .. }| match *cost > policy.capacity() {
            // No shard is smaller than the last one. So a cost above the capacity never passes, not even in a larger
            // shard.
            true => policy.shards() - 1,
            false => turn.shard_of(index, policy),
        })
    }

    /// Chooses another shard, at random, wherever the shard of this attempt was full.
    ///
    /// `None` if the first attempt has charged anything. `None` if no other shard could let the check pass, because a
    /// policy without shards denies it too or a cost fits no shard. `None` also if a policy counts denials, because
    /// it would count both attempts, and if holds may be left of the first attempt.
    fn second(&self, check: &Check, denial: &Verdict) -> Option<Self> {
        let is_full = |index: usize| denial.outcomes.get(index).is_some_and(|outcome| !outcome.fits);
        let is_hopeful = |Charge { policy, cost, .. }: &Charge| policy.is_sharded() && *cost <= policy.capacity();
        // Shadow policies decide nothing, except in an allowed check that has charged nothing.
        let decides = |charge: &Charge| denial.allowed || !charge.policy.is_shadow();
        let mut full =
            check.charges().iter().enumerate().filter(|(index, charge)| is_full(*index) && decides(charge)).peekable();
        if denial.charged(check).next().is_some()
            || full.peek().is_none()
            || !full.all(|(_, charge)| is_hopeful(charge))
            || check.charges().iter().any(|charge| charge.policy.denials_counted())
        {
            return None;
        }
        let random = RandomState::default();
        Some(Self::of(check, |index, Charge { policy, .. }| match is_full(index) {
            true => other(self.numbers[index], policy.shards(), random.hash_one(index)),
            false => self.numbers[index],
        }))
    }

    fn of(check: &Check, shard_of: impl Fn(usize, &Charge) -> u32) -> Self {
        let charges = check.charges().iter().enumerate();
        let numbers: SmallVec<[u32; 1]> = charges.map(|(index, charge)| shard_of(index, charge)).collect();
        let sent = check.charges().iter().zip(&numbers).map(|(charge, number)| charge.of_shard(*number));
        Self { sent: Check::of_distinct(sent), numbers }
    }
}

/// Of two denials of a check, the one with the shorter wait: its shard has room again first.
fn milder(first: Verdict, second: Verdict) -> Verdict {
    if second.allowed || wait_us(&second) < wait_us(&first) { second } else { first }
}

/// The time until a denied check passes; the longest time if it never does.
fn wait_us(denial: &Verdict) -> u64 {
    let violated = denial.outcomes.iter().filter(|outcome| !outcome.fits);
    violated.map(|outcome| outcome.retry_after_us.unwrap_or(u64::MAX)).max().unwrap_or(u64::MAX)
}

/// Any other shard than `number`. There are few shards, so the results are equally likely.
fn other(number: u32, shards: u32, random: u64) -> u32 {
    let distance = 1 + random % u64::from(shards - 1).max(1);
    u32::try_from((u64::from(number) + distance) % u64::from(shards)).unwrap_or(0)
}

/// The check of a peek: the charges of all shards.
pub(in crate::limiter) fn all_shards(check: &Check) -> Check {
    Check::of_distinct(check.charges().iter().flat_map(Charge::of_all_shards))
}

/// Divides a check into parts, each with at most as many shards as a check may have charges. No charge is divided: no
/// policy has more shards.
pub(in crate::limiter) fn parts_of(check: &Check) -> Vec<Check> {
    let mut parts: Vec<Vec<Charge>> = Vec::new();
    let mut room = 0;
    for charge in check.charges() {
        let shards = charge.policy.shards() as usize;
        match parts.last_mut() {
            Some(part) if shards <= room => part.push(charge.clone()),
            _ => {
                parts.push(vec![charge.clone()]);
                room = Check::MAX_CHARGES;
            }
        }
        room = room.saturating_sub(shards);
    }
    parts.into_iter().map(Check::of_distinct).collect()
}

/// Turns the verdict on all shards into the verdict on the check of a peek.
fn merge(check: &Check, verdict: Verdict) -> Verdict {
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
/// As [`join`].
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

/// Waits for calls that change counts, at the same time. Returns their answers in the order of the calls.
///
/// # Errors
///
/// The error of any call, after all have been answered. It says that something may have been charged if that is so of
/// any call.
pub(in crate::limiter) async fn join<T, F>(calls: impl IntoIterator<Item = Pin<Box<F>>>) -> Result<Vec<T>, Error>
where
    F: Future<Output = Result<T, Error>> + ?Sized,
{
    let answers = answers(calls).await;
    let may_have_charged = answers.iter().any(|answer| answer.as_ref().err().is_none_or(Error::may_have_charged));
    let joined: Result<Vec<T>, Error> = answers.into_iter().collect();
    joined.map_err(|error| if may_have_charged { error.charge_unknown() } else { error })
}

/// Waits for calls at the same time. Returns their answers in the order of the calls.
pub(in crate::limiter) async fn answers<T, F>(calls: impl IntoIterator<Item = Pin<Box<F>>>) -> Vec<Result<T, Error>>
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_shard_is_any_but_the_first() {
        for shards in 2..=64 {
            for number in 0..shards {
                let random = |distance: u64| 5 * u64::from(shards - 1) + distance;
                let mut others: Vec<_> =
                    (0..u64::from(shards - 1)).map(|distance| other(number, shards, random(distance))).collect();
                others.push(number);
                others.sort_unstable();
                assert_eq!(others, (0..shards).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn of_two_shards_with_equal_room_the_earlier_gain_and_the_later_reset_are_told() {
        let outcome = |next_us, reset_us| Outcome { available: 3, next_us, reset_us, ..NO_ROOM };
        let (one, other) = (outcome(5, 9), outcome(7, 20));
        assert_eq!([merge_two(one, other), merge_two(other, one)], [outcome(5, 20); 2]);
    }

    #[test]
    fn a_cost_fits_when_it_fits_the_first_shard() {
        let policy = Policy::per_minute("p", 20).unwrap().with_shards(2);
        let shard = |available, retry_after_us| Outcome { available, retry_after_us, ..NO_ROOM };
        let [soon, later] = [shard(1, Some(5)), shard(2, Some(9))];
        for (shards, wait_us) in [([soon, later], Some(5)), ([later, Outcome { fits: true, ..soon }], None)] {
            let verdict = Verdict { outcomes: shards.into_iter().collect(), ..Verdict::of_one(NO_ROOM, &policy, 1) };
            let merged = merge_costs(&Check::new("k", &policy, 3), verdict);
            assert_eq!((merged.allowed, merged.outcomes[0].retry_after_us), (wait_us.is_none(), wait_us));
        }
    }
}
