//! Checks that do not charge all of their units or none: peeks at costs, and charges of as much as fits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::calls::{CheckCall, Purpose};
use crate::check::{Charge, Check};
use crate::error::{ConfigError, Error};
use crate::limiter::{core::Core, lease, sharded};
use crate::store::{Answer, Pending};
use crate::{decision::Decision, runtime::stalls::Budget, verdict::Verdict};

/// Asks for an unusual check. Nothing is sent before the first poll.
pub(super) fn ask(
    core: Arc<Core>,
    check: Check,
    purpose: Purpose,
) -> Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>> {
    match purpose.is_up_to() {
        true => Box::pin(up_to(core, check, purpose)),
        false => Box::pin(peek(core, check, purpose)),
    }
}

async fn peek(core: Arc<Core>, mut check: Check, purpose: Purpose) -> Result<Decision, Error> {
    // Observers see failures of a peek and no decision, as of a check without costs.
    let without_cost = |charge: &Charge| Charge { cost: 0, ..charge.clone() };
    let free = || Check::of_distinct(check.charges().iter().map(without_cost));
    let span = core.calls.observer.is_some().then(free).and_then(|free| core.calls.start_span(&free));
    let result = match check.is_decided_by_policy() {
        true => peek_beside_blocked(&core, &check, purpose).await,
        false => peek_at_store(&core, &check, purpose).await,
    };
    match result {
        Ok(verdict) => Ok(Decision::new(&mut check, &verdict)),
        Err(error) => core.on_error(&check, error, purpose, span),
    }
}

/// Peeks at the charges that are not under blocked policies, if there are any and no blocked policy is enforced.
async fn peek_beside_blocked(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Result<Verdict, Error> {
    match check.beside_blocked() {
        Some(others) if !others.charges().is_empty() => {
            peek_at_store(core, &others, purpose).await.map(|verdict| verdict.with_blocked(check))
        }
        others => Ok(Verdict::of_policies(check, others.is_some())),
    }
}

/// Looks up whether the costs of a check would pass, by the store and what this process has left of its blocks.
async fn peek_at_store(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Result<Verdict, Error> {
    let beside = core.calls.held.check_beside(check);
    let sent = beside.as_ref().unwrap_or(check);
    let mut verdict = match check.is_sharded() {
        true => peek_at_shards(core, check, sent, purpose).await,
        false => peek_at_counts(core, check, sent, purpose).await,
    }?;
    core.calls.on_answer(&verdict);
    if gets_blocks(check, beside.as_ref()) {
        lease::add_left(core, check, &mut verdict);
    }
    Ok(verdict)
}

/// Asks the store to look at the costs of a check, of which it gets `sent`.
async fn peek_at_counts(core: &Core, check: &Check, sent: &Check, purpose: Purpose) -> Result<Verdict, Error> {
    match core.calls.store.peek(sent) {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => CheckCall::new(pending).answer(&core.calls, sent, check, purpose).await,
    }
}

/// Asks the store to look at the costs of a check in all shards: in several checks at the same time, if these are more
/// charges than a check may have.
async fn peek_at_shards(core: &Core, check: &Check, sent: &Check, purpose: Purpose) -> Result<Verdict, Error> {
    let parts = sharded::parts_of(check).into_iter().zip(sharded::parts_of(sent));
    let peeks = parts.map(|(check, sent)| {
        Box::pin(async move {
            let shards = sharded::all_shards(&sent);
            let verdict = peek_at_counts(core, &check, &shards, purpose).await;
            verdict.map(|verdict| sharded::merge_costs(&check, verdict))
        })
    });
    let verdicts: Result<Vec<Verdict>, Error> = sharded::answers(peeks).await.into_iter().collect();
    let whole = verdicts?.into_iter().reduce(|one, next| Verdict {
        allowed: one.allowed && next.allowed,
        outcomes: one.outcomes.iter().chain(next.outcomes.iter()).copied().collect(),
        ..one
    });
    whole.ok_or_else(|| ConfigError::new("the check has no charge").into())
}

/// Whether a check gets what blocks of this process have left: under a policy with a lease, and under one without holds
/// that is asked `beside` blocks. A policy with holds and without a lease sees blocks as it sees other holds.
fn gets_blocks(check: &Check, beside: Option<&Check>) -> bool {
    !check.is_direct() || beside.is_some()
}

async fn up_to(core: Arc<Core>, mut check: Check, purpose: Purpose) -> Result<Decision, Error> {
    let mut span = core.calls.start_span(&check);
    // If the caller leaves before the answer, units may be charged.
    span.iter_mut().for_each(|span| span.waits());
    let charged = charge_up_to(&core, &check, purpose).await;
    match charged {
        Ok((verdict, units)) => {
            check.set_cost(units.max(1));
            span.iter_mut().for_each(|span| span.set_cost(units.max(1)));
            let decision = core.on_verdict(&mut check, &verdict, purpose, span);
            // What the store has charged for a check that is denied here pays for what this instance owes.
            Ok(if units == 0 || !decision.is_allowed() { decision.without_cost() } else { decision })
        }
        Err(error) => core.on_error(&check, error, purpose, span),
    }
}

/// Gives blocks of the count back and asks the store, behind the breaker and together within the deadline.
async fn charge_up_to(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Result<(Verdict, u64), Error> {
    if check.is_decided_by_policy() {
        return Ok((Verdict::of_policies(check, check.beside_blocked().is_some()), 0));
    }
    let mut time = core.calls.store.deadline();
    if let [charge] = check.charges()
        && gets_blocks(check, core.calls.held.check_beside(check).as_ref())
    {
        let budget = Budget::of(time);
        // The other half is for the store. On a slow network that is too short, so the settlements are sent before the
        // charge and not awaited.
        let is_slow = core.leases.is_slow(&charge.key, &charge.policy);
        let longest = if is_slow { Duration::ZERO } else { time / 2 };
        if lease::give_back(core, &charge.key, &charge.policy, longest).await {
            time = budget.left_after(budget.spent());
        }
    }
    let beside = core.calls.held.check_beside(check);
    let sent = beside.as_ref().unwrap_or(check);
    let Some(charge) = sent.charges().first() else { return Err(ConfigError::new("the check has no charge").into()) };
    match core.calls.store.charge_up_to(charge) {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => {
            let units = Arc::new(AtomicU64::new(0));
            let charged = Arc::clone(&units);
            let pending: Pending<Verdict> = pending.map(move |(verdict, units)| {
                charged.store(units, Ordering::Relaxed);
                verdict
            });
            let verdict = CheckCall::new(pending).within(time).answer(&core.calls, sent, check, purpose).await?;
            Ok((verdict, units.load(Ordering::Relaxed)))
        }
    }
}
