//! Judges a call: all of its charges are one atomic check.

use std::{borrow::Cow, time::Duration};

use metrics::Counter;
use tokio::time::{Instant, timeout_at};
use tollgate::decision::{PolicyDecision, Source};
use tollgate::limiter::{Hold, HoldAnswer, SettleFuture};
use tollgate::{Check, Decision, Error, ErrorKind, FailurePolicy, Key, Limiter, Policy, store::SettleAnswer};

use super::aside::Aside;
use super::plan::{Ask, Charged, Kind, Plan};
use crate::holds::{HeldPart, Holds};
use crate::{config::rule::DEFAULT_TTL, meters::Meters, warnings::Warnings};

/// What judges calls.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) limiter: Limiter,
    pub(crate) holds: Holds,
    pub(crate) meters: Meters,
    pub(crate) warnings: Warnings,
    /// How long a call may take.
    pub(crate) deadline: Duration,
    /// Whether the limiter has a local fallback. A store in memory needs none.
    pub(crate) has_fallback: bool,
}

/// The verdict on a call.
#[derive(Debug)]
pub(crate) enum Judged {
    Decided {
        allowed: bool,
        /// Where each charge stands. `None` without a verdict, as for shadow rules while the store is away.
        standings: Vec<Option<PolicyDecision>>,
        /// The decision that fields of the response are written from.
        decision: Option<Decision>,
    },
    /// The store has given no verdict, and the rules let the call pass.
    Open,
    /// The store has given no verdict, and Envoy decides.
    Unavailable,
    /// The setup is wrong, or the store gets more than it can judge: every failure policy refuses.
    Refused,
}

/// A decision, the holds that it has made, and the quota that was enforced.
struct Verdict {
    decision: Decision,
    hold: Option<Hold>,
    enforced: Option<usize>,
}

impl Judge {
    pub(crate) async fn judge(&self, plan: &Plan) -> Judged {
        let until = Instant::now() + self.deadline;
        // What a settlement ends is over, whatever becomes of the rest of the call.
        let mut aside = Aside::default();
        self.settle(plan, &mut aside).await;
        let judged = self.verdict(plan, until).await;
        if let Judged::Decided { allowed, standings, .. } = &judged {
            // The verdict stays if these fail.
            self.record(plan, *allowed, standings, &mut aside).await;
            if *allowed {
                self.credit(plan, &mut aside).await;
            }
        }
        aside.wait(until).await;
        judged
    }

    async fn verdict(&self, plan: &Plan, until: Instant) -> Judged {
        for part in &plan.parts {
            if let Ask::Refuse { advice, is_shadow, .. } = part.ask {
                self.warnings.calls(advice);
                if !is_shadow {
                    return Judged::Refused;
                }
            }
        }
        let on_failure = plan.on_store_failure();
        match timeout_at(until, self.decide(plan, on_failure)).await {
            Ok(Ok(judged)) => judged,
            Ok(Err(error)) => match (error.kind(), on_failure) {
                (ErrorKind::InvalidCall | ErrorKind::Overloaded, _) => Judged::Refused,
                (_, FailurePolicy::Open) => Judged::Open,
                _ => Judged::Unavailable,
            },
            Err(_) if on_failure == FailurePolicy::Open => Judged::Open,
            Err(_) => Judged::Unavailable,
        }
    }

    /// Looks up what is only asked for, and then charges the rest.
    async fn decide(&self, plan: &Plan, on_failure: FailurePolicy) -> Result<Judged, Error> {
        let mut standings = vec![None; plan.charges.len()];
        let mut last = None;
        for is_charged in [false, true] {
            let of_turn = |(number, charged): (usize, &Charged)| ((charged.units > 0) == is_charged).then_some(number);
            let turn: Vec<usize> = plan.charges.iter().enumerate().filter_map(of_turn).collect();
            if turn.is_empty() {
                continue;
            }
            let Verdict { decision, hold, enforced } =
                self.first_with_room(plan, &turn, is_charged, on_failure).await?;
            for (number, standing) in turn.iter().zip(decision.policies()) {
                standings[*number] = Some(standing.clone());
            }
            let allowed = decision.is_allowed();
            if let Some(hold) = hold {
                self.keep(plan, hold, enforced);
            }
            if !allowed {
                return Ok(Judged::Decided { allowed, standings, decision: Some(decision) });
            }
            last = Some(decision);
        }
        Ok(Judged::Decided { allowed: true, standings, decision: last })
    }

    /// Judges these charges. If some are quotas, one of them has to have room: one is enforced, beside the others in
    /// shadow, and then another one, until the check passes. A check that does not pass charges nothing.
    async fn first_with_room(
        &self,
        plan: &Plan,
        turn: &[usize],
        is_charged: bool,
        on_failure: FailurePolicy,
    ) -> Result<Verdict, Error> {
        let is_quota = |number: &usize| plan.charges[*number].kind == Kind::Quota;
        let quotas: Vec<_> = turn.iter().copied().filter(is_quota).collect();
        let mut untried = quotas.clone();
        let mut enforced = quotas.first().copied();
        let mut is_last = false;
        loop {
            let verdict = self.attempt(plan, turn, enforced, is_charged, on_failure).await?;
            let standing = |number: usize| {
                let mut standings = turn.iter().zip(verdict.decision.policies());
                standings.find_map(|(of, standing)| (*of == number).then_some(standing))
            };
            let denies = |number: usize| standing(number).is_some_and(|standing| standing.violated);
            let only_by_quota =
                enforced.is_some_and(|quota| !turn.iter().any(|number| *number != quota && denies(*number)));
            if verdict.decision.is_allowed() || !only_by_quota || is_last {
                return Ok(verdict);
            }
            untried.retain(|quota| Some(*quota) != enforced);
            let last = enforced;
            // A verdict of the store is also about the quotas in shadow. So the number of calls of the store does not
            // grow with that of the quotas, which all have to be over within the deadline. A remembered verdict may be
            // older than what such a quota has left.
            let is_new = matches!(verdict.decision.source(), Source::Store | Source::Local);
            let is_over = |quota: usize| is_new && standing(quota).is_some_and(|standing| standing.would_deny);
            enforced = untried.iter().copied().find(|quota| !is_over(*quota));
            if enforced.is_none() {
                // The answer is that of the one which has room first.
                let wait = |quota: &usize| standing(*quota).and_then(|standing| standing.retry_after);
                enforced = quotas.iter().copied().min_by_key(|quota| wait(quota).unwrap_or(Duration::MAX));
                if enforced == last {
                    return Ok(verdict);
                }
                is_last = true;
            }
        }
    }

    async fn attempt(
        &self,
        plan: &Plan,
        turn: &[usize],
        enforced: Option<usize>,
        is_charged: bool,
        on_failure: FailurePolicy,
    ) -> Result<Verdict, Error> {
        let mut check: Option<Check> = None;
        let mut has_holds = false;
        for number in turn {
            let charged = &plan.charges[*number];
            let Charged { key, kind, units, .. } = charged;
            let policy = policy(charged, enforced == Some(*number));
            let is_held = charged.is_held && self.has_room(key, *kind)?;
            has_holds |= is_held;
            let units = (*units).max(1);
            check = Some(match (check, is_held) {
                (None, true) => Check::hold(key.clone(), &policy, units),
                (None, false) => Check::new(key.clone(), &policy, units),
                (Some(check), true) => check.and_hold(key.clone(), &policy, units),
                (Some(check), false) => check.and(key.clone(), &policy, units),
            });
        }
        let Some(check) = check else {
            return Err(Error::new(ErrorKind::InvalidCall, "a call without a charge was judged"));
        };
        let is_local = self.has_fallback && on_failure == FailurePolicy::Local;
        if has_holds {
            let future = self.limiter.hold_all(check);
            let (decision, hold) = match if is_local { future.fail_local() } else { future }.await? {
                HoldAnswer::Open(hold) => (hold.decision().clone(), Some(hold)),
                HoldAnswer::Denied(decision) => (decision, None),
            };
            return Ok(Verdict { decision, hold, enforced });
        }
        let future = if is_charged { self.limiter.check_all(check) } else { self.limiter.peek_all(check) };
        let decision = if is_local { future.fail_local() } else { future }.await?;
        Ok(Verdict { decision, hold: None, enforced })
    }

    /// Whether a hold of this count can be kept until it is settled. Without room, a rule in shadow mode is charged,
    /// and others refuse: a hold that nothing settles would charge less than is spent.
    fn has_room(&self, key: &Key, kind: Kind) -> Result<bool, Error> {
        if self.holds.has_room(key) {
            return Ok(true);
        }
        self.warnings.calls("too many holds are open; settle them, or choose a shorter hold_ttl");
        self.meters.holds_full.increment(1);
        match kind {
            Kind::Shadow => Ok(false),
            Kind::Enforced | Kind::Quota => Err(Error::new(ErrorKind::Overloaded, "too many holds are open")),
        }
    }

    /// Keeps the holds of a call under the names of its descriptors.
    fn keep(&self, plan: &Plan, hold: Hold, enforced: Option<usize>) {
        let mut ttl = Duration::ZERO;
        let mut held = |ask: &Ask| {
            let (number, units, name) = match ask {
                Ask::Hold { number, units, name } => (*number, *units, Some(name.clone())),
                // Shares the count of a hold, so its units are held too.
                Ask::Charge { number, units } if plan.charges[*number].is_held => (*number, *units, None),
                _ => return None,
            };
            let charged = &plan.charges[number];
            ttl = ttl.max(charged.limit.settings.hold_ttl.unwrap_or(DEFAULT_TTL));
            let policy = policy(charged, enforced == Some(number)).into_owned();
            Some(HeldPart { name, charge: number, key: charged.key.clone(), policy, units })
        };
        let parts: Vec<_> = plan.parts.iter().filter_map(|part| held(&part.ask)).collect();
        self.holds.keep(hold, parts, ttl);
        self.meters.open_holds.set(self.holds.len() as f64);
    }

    /// Charges what was spent already, although it does not fit, under the rules that say so: all hits of a refused
    /// call, and those that only a limit in shadow did not have.
    async fn record(&self, plan: &Plan, allowed: bool, standings: &[Option<PolicyDecision>], aside: &mut Aside) {
        for (Charged { key, limit, units, .. }, standing) in plan.charges.iter().zip(standings) {
            let is_charged = allowed && !standing.as_ref().is_some_and(|standing| standing.would_deny);
            if limit.settings.record && !is_charged && *units > 0 && limit.shown.requests_per_unit > 0 {
                let (limiter, key, policy, units) = (self.limiter.clone(), key.clone(), limit.policy.clone(), *units);
                aside.start(async move { drop(limiter.record(key, &policy, units).await) }).await;
            }
        }
    }

    /// Settles holds. An end of a hold without an answer is sent again in the background.
    async fn settle(&self, plan: &Plan, aside: &mut Aside) {
        for part in &plan.parts {
            let Ask::Settle { name, settlement } = &part.ask else { continue };
            match self.holds.settle(name, *settlement) {
                Some(settling) => {
                    let Meters { settled, settled_late, settled_unanswered, .. } = &self.meters;
                    match settling {
                        Some(settling) => {
                            let counters = [settled, settled_late, settled_unanswered].map(Counter::clone);
                            aside.start(settle(settling, counters)).await;
                        }
                        // The other descriptors of its call are still to come.
                        None => settled.increment(1),
                    }
                    self.meters.open_holds.set(self.holds.len() as f64);
                }
                None => self.meters.settled_unknown.increment(1),
            }
        }
    }

    /// Gives units back.
    async fn credit(&self, plan: &Plan, aside: &mut Aside) {
        for part in &plan.parts {
            if let Ask::Credit { key, limit, units } = &part.ask
                && *units > 0
            {
                let (limiter, key, policy, units) = (self.limiter.clone(), key.clone(), limit.policy.clone(), *units);
                aside.start(async move { drop(limiter.credit(key, &policy, units).await) }).await;
            }
        }
    }
}

/// Waits for the end of holds, and counts it: settled, too late or not answered yet.
async fn settle(settling: SettleFuture, [settled, late, unanswered]: [Counter; 3]) {
    match settling.await {
        Ok(SettleAnswer::Expired) => late.increment(1),
        Ok(_) => settled.increment(1),
        Err(_) => unanswered.increment(1),
    }
}

/// The policy that a charge is judged by: in shadow, unless it may refuse the call.
fn policy(charged: &Charged, is_enforced: bool) -> Cow<'_, Policy> {
    match charged.kind {
        Kind::Enforced => Cow::Borrowed(&charged.limit.policy),
        Kind::Quota if is_enforced => Cow::Borrowed(&charged.limit.policy),
        Kind::Quota | Kind::Shadow => Cow::Owned(charged.limit.policy.clone().with_shadow(true)),
    }
}
