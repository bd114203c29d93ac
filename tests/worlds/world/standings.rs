//! What a decision says about its key, and what later calls of the same caller see. No other caller uses the key.

use tollgate::{Check, Decision, Error};

use super::World;
use crate::{
    plan::mode::{LIMIT, Mode, WINDOW},
    time::now,
};

/// What the last of some checks has said. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// When the first of them was asked, and the units of all.
    pub(crate) begun: u64,
    pub(crate) spent: u64,
    /// When the last one was asked and answered.
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(crate) available: u64,
    pub(crate) next: u64,
    pub(crate) reset: u64,
    /// What was seen after that, in order.
    pub(crate) looks: Vec<Look>,
}

/// A later call: a peek, or a check with a cost after a peek at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(crate) cost: Option<u64>,
    /// What the peek at the cost has said.
    pub(crate) is_foretold: bool,
    pub(crate) is_allowed: bool,
    pub(crate) available: u64,
}

/// The longest wait that a decision may tell: that of a counter, in milliseconds.
pub(crate) const LONGEST: u64 = 2 * WINDOW + WINDOW / 80;
/// The most checks before that.
const MOST_CHECKS: u64 = 4;
/// How long before something changes another look is taken, beside the way, in milliseconds.
const SHORTLY: u64 = 8;

impl World {
    /// Spends some units of a key of its own, and looks at it until they are back. `None` if a call has failed.
    pub(super) fn stand(&mut self, mode: Mode) -> Option<Standing> {
        let key = format!("stands-{mode}");
        let (begun, mut spent, mut last) = (now(), 0, None);
        for _ in 0..=self.rng.below(MOST_CHECKS) {
            let (cost, pause) = (1 + self.rng.below(4), self.rng.below(WINDOW / 20));
            self.pass(pause);
            let asked = now();
            let decision = self.ask_alone(0, &key, mode, Some(cost)).ok()?;
            spent += cost;
            last = Some((asked, now(), decision));
        }
        let (asked, answered, decision) = last?;
        let said = decision.policies().first()?;
        let [next, reset] = [said.next, said.reset].map(|wait| u64::try_from(wait.as_micros().div_ceil(1_000)).ok());
        let (available, next, reset) = (said.available, next?, reset?);
        let mut standing = Standing { begun, spent, asked, answered, available, next, reset, looks: vec![] };
        self.look(&mut standing, &key, mode, (available < LIMIT).then_some(available + 1))?;
        let has_more = standing.looks.iter().any(|look| look.cost.is_some() && look.is_allowed);
        if has_more || next.max(reset) > LONGEST {
            return Some(standing);
        }
        if available > 0 && self.rng.chance(30) {
            self.look(&mut standing, &key, mode, Some(available))?;
            return Some(standing);
        }
        let way = 2 * (self.plan.delay + self.plan.jitter);
        for wait in [next, reset] {
            // A clock may be slow or fast by 1 %.
            let before = (asked + wait - wait / 80).saturating_sub(way + SHORTLY);
            for until in [before, answered + wait + wait / 80 + 2] {
                self.pass(until.saturating_sub(now()));
                self.look(&mut standing, &key, mode, None)?;
            }
        }
        self.look(&mut standing, &key, mode, Some(LIMIT))?;
        Some(standing)
    }

    fn look(&mut self, standing: &mut Standing, key: &str, mode: Mode, cost: Option<u64>) -> Option<()> {
        let (asked, last) = (now(), self.processes.len() - 1);
        let (limiter, policy) = (self.processes[last].limiter(), mode.policy());
        let check = Check::new(key, &policy, cost.unwrap_or(1));
        let foretold = self.answer_of(last, limiter.peek_all(check)).expect("a check has a deadline").ok()?;
        let decision = self.ask_alone(last, key, mode, cost).ok()?;
        let (is_allowed, available) = (decision.is_allowed(), decision.available()?);
        standing.looks.push(Look {
            asked,
            answered: now(),
            cost,
            is_foretold: foretold.is_allowed(),
            is_allowed,
            available,
        });
        Some(())
    }

    /// A check, or a peek without a cost.
    fn ask_alone(&mut self, process: usize, key: &str, mode: Mode, cost: Option<u64>) -> Result<Decision, Error> {
        let (limiter, policy) = (self.processes[process].limiter(), mode.policy());
        let future = match cost {
            Some(cost) => limiter.check(key, &policy, cost),
            None => limiter.peek(key, &policy),
        };
        self.answer_of(process, future).expect("a check has a deadline")
    }
}
