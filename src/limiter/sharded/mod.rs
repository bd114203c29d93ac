//! Checks under policies with shards: one shard, and one other if that is full.
//!
//! Stores know nothing of shards: a shard is an ordinary charge, with a key and a policy of its own. The first attempt
//! asks one shard of each policy, which the checks of a limiter take in turn. If only shards deny it, a second attempt
//! asks others, chosen at random, within what is left of the deadline. It follows a verdict, so nothing is sent twice.
//! The decision, the observers and the local fallback get the check as its caller has made it.

mod attempt;
mod peek;
pub(super) mod turn;

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use self::attempt::{Attempt, milder};
pub(super) use self::peek::{all, reset};
use crate::{
    breaker::CallOutcome,
    check::Check,
    error::Error,
    limiter::{core::Core, guarded::Guarded, purpose::Purpose},
    runtime::stalls::Begin,
    store::{Answer, Pending},
    verdict::Verdict,
};

/// The future of a verdict, behind the breaker and the deadline. Its outcomes are those of the check's charges.
pub(super) type Judgement = Pin<Box<dyn Future<Output = Result<Verdict, Error>> + Send>>;

/// The state of a check after the store was asked.
pub(super) enum Asked {
    /// The store answered without waiting.
    Judged(Result<Verdict, Error>),
    /// A shard has to be awaited. It gets the check at the first poll.
    Waiting(Judgement),
}

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
pub(super) fn ask(core: &Arc<Core>, check: &Check, purpose: Purpose, time: Duration) -> Asked {
    if purpose.is_peek() {
        return ask_all(core, check, purpose, time);
    }
    let attempt = Attempt::first(check, &core.turns);
    let step = match core.store.check(&attempt.sent) {
        Answer::Ready(Ok(verdict)) => ask_again(core, check, &attempt, verdict),
        Answer::Ready(Err(error)) => Step::Judged(Err(error)),
        Answer::Pending(pending) => Step::Unanswered(Unanswered { attempt, pending, denial: None }),
    };
    match step {
        Step::Judged(result) => Asked::Judged(result),
        Step::Unanswered(unanswered) => {
            Asked::Waiting(Box::pin(judge(Arc::clone(core), check.clone(), purpose, unanswered, time)))
        }
    }
}

/// Makes the second attempt, if the verdict on the first one is a denial that another shard may change.
fn ask_again(core: &Core, check: &Check, first: &Attempt, verdict: Verdict) -> Step {
    let Some(attempt) = first.second(check, &verdict) else { return Step::Judged(Ok(verdict)) };
    match core.store.check(&attempt.sent) {
        Answer::Ready(result) => Step::Judged(result.map(|second| milder(verdict, second))),
        Answer::Pending(pending) => Step::Unanswered(Unanswered { attempt, pending, denial: Some(verdict) }),
    }
}

/// Waits for the verdicts of one or two attempts, together within one deadline.
async fn judge(
    core: Arc<Core>,
    check: Check,
    purpose: Purpose,
    unanswered: Unanswered,
    deadline: Duration,
) -> Result<Verdict, Error> {
    let begin = Begin::now(deadline);
    let Unanswered { attempt, pending, denial } = unanswered;
    let verdict = answer(&core, &attempt.sent, &check, purpose, pending, deadline).await?;
    if let Some(denial) = denial {
        return Ok(milder(denial, verdict));
    }
    let spent = begin.map_or(Duration::ZERO, |begin| begin.running(Instant::now()));
    // Whole milliseconds, because timers round up to them, and two of them must not be later than one.
    let left = Duration::from_millis(u64::try_from(deadline.saturating_sub(spent).as_millis()).unwrap_or(u64::MAX));
    // A second attempt that takes as long as the first one would be late: its unknown fate is worse than a denial.
    if left < spent {
        return Ok(verdict);
    }
    match ask_again(&core, &check, &attempt, verdict) {
        Step::Judged(result) => result,
        Step::Unanswered(Unanswered { attempt, pending, denial }) => {
            let second = answer(&core, &attempt.sent, &check, purpose, pending, left).await?;
            Ok(match denial {
                Some(denial) => milder(denial, second),
                None => second,
            })
        }
    }
}

/// Asks all shards. A peek does.
fn ask_all(core: &Arc<Core>, check: &Check, purpose: Purpose, time: Duration) -> Asked {
    let sent = peek::all_shards(check);
    match core.store.check(&sent) {
        Answer::Ready(result) => Asked::Judged(result.map(|verdict| peek::merge(check, verdict))),
        Answer::Pending(pending) => {
            let (core, check) = (Arc::clone(core), check.clone());
            Asked::Waiting(Box::pin(async move {
                let verdict = answer(&core, &sent, &check, purpose, pending, time).await?;
                Ok(peek::merge(&check, verdict))
            }))
        }
    }
}

/// The answer to one call of the store, behind the breaker and within `time`.
pub(super) async fn answer(
    core: &Arc<Core>,
    sent: &Check,
    check: &Check,
    purpose: Purpose,
    pending: Pending<Verdict>,
    time: Duration,
) -> Result<Verdict, Error> {
    let mut guarded = Guarded::new(pending, CallOutcome::of_verdict).within(time);
    let mut reserved = None;
    poll_fn(|cx| {
        let admit = |pending: &Pending<Verdict>| core.admit_within_share(sent, check, purpose, pending, &mut reserved);
        guarded.poll(core, admit, cx)
    })
    .await
}
