//! Judges a call: all of its charges are one atomic check.

use std::{sync::Once, time::Duration};

use tokio::time::{Instant, timeout_at};
use tollgate::{
    Check, Decision, Error, ErrorKind, FailurePolicy, Limiter,
    decision::PolicyDecision,
    limiter::{Hold, HoldAnswer},
};

use super::plan::{Ask, Charged, Kind, Plan};
use crate::{
    config::rule::DEFAULT_TTL,
    holds::{HeldPart, Holds},
    meters::Meters,
};

/// What judges calls.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) limiter: Limiter,
    pub(crate) holds: Holds,
    pub(crate) meters: Meters,
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

/// A decision, and the holds that it has made.
type Verdict = (Decision, Option<Hold>);

impl Judge {
    pub(crate) async fn judge(&self, plan: &Plan) -> Judged {
        let until = Instant::now() + self.deadline;
        if let Some(advice) = plan.parts.iter().find_map(|part| match part.ask {
            Ask::Refuse { advice, .. } => Some(advice),
            _ => None,
        }) {
            static REPORT: Once = Once::new();
            REPORT.call_once(|| eprintln!("tollgate-envoy: calls are refused: {advice}"));
            return Judged::Refused;
        }
        let on_failure = plan.on_store_failure();
        match timeout_at(until, self.decide(plan, on_failure)).await {
            Ok(Ok(judged)) => {
                if let Judged::Decided { allowed: true, .. } = judged {
                    // What is given back is sent although nobody waits for it.
                    let _ = timeout_at(until, self.give_back(plan)).await;
                }
                judged
            }
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
            let (decision, hold) = self.first_with_room(plan, &turn, is_charged, on_failure).await?;
            for (number, standing) in turn.iter().zip(decision.policies()) {
                standings[*number] = Some(standing.clone());
            }
            let allowed = decision.is_allowed();
            if let Some(hold) = hold {
                self.keep(plan, hold);
            }
            if !allowed {
                self.record_denied(plan, &turn).await?;
                return Ok(Judged::Decided { allowed, standings, decision: Some(decision) });
            }
            last = Some(decision);
        }
        Ok(Judged::Decided { allowed: true, standings, decision: last })
    }

    /// Judges these charges. If some are quotas, one of them has to have room: each is enforced in turn, beside the
    /// others in shadow, until the check passes. A check that does not pass charges nothing.
    async fn first_with_room(
        &self,
        plan: &Plan,
        turn: &[usize],
        is_charged: bool,
        on_failure: FailurePolicy,
    ) -> Result<Verdict, Error> {
        let is_quota = |number: &&usize| plan.charges[**number].kind == Kind::Quota;
        let quotas: Vec<_> = turn.iter().filter(is_quota).copied().collect();
        let mut nearest: Option<Verdict> = None;
        let mut enforced = quotas.first().copied();
        for next in 1.. {
            let verdict = self.attempt(plan, turn, enforced, is_charged, on_failure).await?;
            let only_by_quota = enforced.is_some_and(|quota| {
                let denies = |(number, standing): (&usize, &PolicyDecision)| standing.violated && *number != quota;
                !turn.iter().zip(verdict.0.policies()).any(denies)
            });
            if verdict.0.is_allowed() || !only_by_quota {
                return Ok(verdict);
            }
            let wait = |verdict: &Verdict| verdict.0.retry_after().unwrap_or(Duration::MAX);
            nearest = match nearest {
                Some(other) if wait(&other) <= wait(&verdict) => Some(other),
                _ => Some(verdict),
            };
            match quotas.get(next) {
                Some(quota) => enforced = Some(*quota),
                None => break,
            }
        }
        nearest.ok_or_else(|| Error::new(ErrorKind::InvalidCall, "a call without a charge was judged"))
    }

    async fn attempt(
        &self,
        plan: &Plan,
        turn: &[usize],
        enforced: Option<usize>,
        is_charged: bool,
        on_failure: FailurePolicy,
    ) -> Result<Verdict, Error> {
        let has_room = self.holds.has_room();
        let mut check: Option<Check> = None;
        let mut has_holds = false;
        for number in turn {
            let Charged { key, limit, kind, units, is_held } = &plan.charges[*number];
            let shadow;
            let policy = match kind {
                Kind::Enforced => &limit.policy,
                Kind::Quota if enforced == Some(*number) => &limit.policy,
                Kind::Quota | Kind::Shadow => {
                    shadow = limit.policy.clone().with_shadow(true);
                    &shadow
                }
            };
            // Without room for its name, a hold could not be settled: the units are charged.
            let is_held = *is_held && (has_room || limit.settings.is_concurrent);
            has_holds |= is_held;
            let units = (*units).max(1);
            check = Some(match (check, is_held) {
                (None, true) => Check::hold(key.clone(), policy, units),
                (None, false) => Check::new(key.clone(), policy, units),
                (Some(check), true) => check.and_hold(key.clone(), policy, units),
                (Some(check), false) => check.and(key.clone(), policy, units),
            });
        }
        let Some(check) = check else {
            return Err(Error::new(ErrorKind::InvalidCall, "a call without a charge was judged"));
        };
        let is_local = self.has_fallback && on_failure == FailurePolicy::Local;
        if has_holds && !has_room && turn.iter().any(|number| plan.charges[*number].limit.settings.is_concurrent) {
            return Err(Error::new(ErrorKind::Overloaded, "too many holds are open"));
        }
        if has_holds {
            let future = self.limiter.hold_all(check);
            return Ok(match if is_local { future.fail_local() } else { future }.await? {
                HoldAnswer::Open(hold) => (hold.decision().clone(), Some(hold)),
                HoldAnswer::Denied(decision) => (decision, None),
            });
        }
        let future = if is_charged { self.limiter.check_all(check) } else { self.limiter.peek_all(check) };
        Ok((if is_local { future.fail_local() } else { future }.await?, None))
    }

    /// Keeps the holds of a call under the names of its descriptors.
    fn keep(&self, plan: &Plan, hold: Hold) {
        let mut ttl = Duration::ZERO;
        let mut held = |ask: &Ask| {
            let (number, units, name) = match ask {
                Ask::Hold { number, units, name } => (*number, *units, Some(name.clone())),
                // Shares the count of a hold, so its units are held too.
                Ask::Charge { number, units } if plan.charges[*number].is_held => (*number, *units, None),
                _ => return None,
            };
            let Charged { limit, .. } = &plan.charges[number];
            ttl = ttl.max(limit.settings.hold_ttl.unwrap_or(DEFAULT_TTL));
            Some(HeldPart { name, charge: number, policy: limit.policy.clone(), units })
        };
        let parts: Vec<_> = plan.parts.iter().filter_map(|part| held(&part.ask)).collect();
        self.holds.keep(hold, parts, ttl);
        self.meters.open_holds.set(self.holds.len() as f64);
    }

    /// Charges what was spent already, although it does not fit, under the rules that say so.
    async fn record_denied(&self, plan: &Plan, turn: &[usize]) -> Result<(), Error> {
        for Charged { key, limit, units, .. } in turn.iter().map(|number| &plan.charges[*number]) {
            if limit.settings.record && *units > 0 && limit.shown.requests_per_unit > 0 {
                self.limiter.record(key.clone(), &limit.policy, *units).await?;
            }
        }
        Ok(())
    }

    /// Settles holds and gives units back. An end of a hold without an answer is sent again in the background.
    async fn give_back(&self, plan: &Plan) {
        for part in &plan.parts {
            match &part.ask {
                Ask::Settle { name, settlement } => match self.holds.settle(name, *settlement) {
                    Some(settling) => {
                        self.meters.settled.increment(1);
                        if let Some(settling) = settling {
                            let _ = settling.await;
                        }
                        self.meters.open_holds.set(self.holds.len() as f64);
                    }
                    None => self.meters.settled_unknown.increment(1),
                },
                Ask::Credit { key, limit, units } if *units > 0 => {
                    let _ = self.limiter.credit(key.clone(), &limit.policy, *units).await;
                }
                _ => {}
            }
        }
    }
}
