//! Checks under policies with shards: one shard, and one other if that is full.
//!
//! Stores know nothing of shards: a shard is an ordinary charge, with a key and a policy of its own. The first attempt
//! asks one shard of each policy, which the checks of a limiter take in turn. If only shards deny it, a second attempt
//! asks others, chosen at random, within what is left of the deadline. It follows a verdict, so nothing is sent twice.
//! The decision, the observers and the local fallback get the check as its caller has made it.

mod attempt;
mod peek;
pub(super) mod turn;

use std::{sync::Arc, time::Duration};

pub(super) use self::peek::{all_shards, join, merge_costs, of_each};
use self::{
    attempt::{Attempt, milder},
    turn::Turns,
};
use crate::{
    calls::{Calls, CheckCall, Purpose},
    check::Check,
    error::Error,
    runtime::stalls::Budget,
    store::{Answer, Pending},
    verdict::Verdict,
};

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
    turns: &Turns,
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
    let sent = peek::all_shards(check);
    match calls.store.check(&sent) {
        Answer::Ready(result) => Answer::Ready(result.map(|verdict| peek::merge(check, verdict))),
        Answer::Pending(pending) => {
            let (calls, check) = (Arc::clone(calls), check.clone());
            Answer::Pending(Pending::new(async move {
                let verdict = CheckCall::new(pending).within(time).answer(&calls, &sent, &check, purpose).await?;
                Ok(peek::merge(&check, verdict))
            }))
        }
    }
}
