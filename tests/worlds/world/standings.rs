//! What a decision says about its key, and what later calls of the same caller see. No other caller uses the key.

use tokio::sync::oneshot::{self, Sender};
use tollgate::{Check, Decision, Error};

use super::World;
use crate::plan::mode::{LIMIT, Mode, SHARDS, WINDOW};
use crate::time::now;

/// What the last of some checks has said. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    /// When the first of them was asked, and the units of all.
    pub(crate) begun: u64,
    pub(crate) spent: u64,
    /// What is available when nothing is spent.
    pub(crate) full: u64,
    /// What is held all the time.
    pub(crate) held: u64,
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
/// The most units that are held all the time.
const MOST_HELD: u64 = 16;
/// How long it takes at most until units are held, in milliseconds.
const HELD: u64 = 100;
/// How long before something changes another look is taken, beside the way, in milliseconds.
const SHORTLY: u64 = 8;

impl World {
    /// Spends some units of a key of its own, and looks at it until they are back. `None` if a call has failed.
    pub(super) fn stand(&mut self, mode: Mode) -> Option<Standing> {
        let key = format!("stands-{mode}");
        let (begun, mut spent, mut last) = (now(), 0, None);
        let (held, _open) =
            if mode.is_holds() && self.rng.chance(50) { self.keep_held(&key, mode)? } else { (0, None) };
        for _ in 0..=self.rng.below(MOST_CHECKS) {
            let (cost, pause) = (1 + self.rng.below(4), self.rng.below(WINDOW / 20));
            self.pass(pause);
            if mode.is_holds() {
                spent += self.hold_alone(&key, mode, cost)?;
                continue;
            }
            let asked = now();
            let decision = self.ask_alone(0, &key, mode, Some(cost)).ok()?;
            spent += cost;
            last = Some((asked, now(), decision));
        }
        // The answer to a check speaks of one shard, and that to a hold comes before its settlement.
        if mode == Mode::Shards || mode.is_holds() {
            let asked = now();
            let decision = self.ask_alone(0, &key, mode, None).ok()?;
            last = Some((asked, now(), decision));
        }
        let full = if mode == Mode::Shards { LIMIT / u64::from(SHARDS) } else { LIMIT - held };
        let (asked, answered, decision) = last?;
        let said = decision.policies().first()?;
        let [next, reset] = [said.next, said.reset].map(|wait| u64::try_from(wait.as_micros().div_ceil(1_000)).ok());
        let (available, next, reset) = (said.available, next?, reset?);
        let mut standing =
            Standing { begun, spent, full, held, asked, answered, available, next, reset, looks: vec![] };
        self.look(&mut standing, &key, mode, (available < full).then_some(available + 1))?;
        let has_more = standing.looks.iter().any(|look| look.cost.is_some() && look.is_allowed);
        if has_more || next.max(reset) > LONGEST {
            return Some(standing);
        }
        // A check tries two shards of three.
        let is_plain = mode != Mode::Shards;
        if is_plain && available > 0 && self.rng.chance(30) {
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
        if is_plain {
            self.look(&mut standing, &key, mode, Some(LIMIT))?;
        }
        Some(standing)
    }

    /// Holds units until what is returned is dropped.
    fn keep_held(&mut self, key: &str, mode: Mode) -> Option<(u64, Option<Sender<()>>)> {
        let (limiter, policy, held) = (self.processes[0].limiter(), mode.policy(), 1 + self.rng.below(MOST_HELD));
        let (key, (open, ended)) = (key.to_owned(), oneshot::channel::<()>());
        let holder = self.spawn(0, 0, async move {
            let _hold = limiter.hold(key, &policy, held).await.ok()?.into_result().ok()?;
            ended.await.ok()
        });
        self.pass(HELD);
        (!holder.is_finished()).then_some((held, Some(open)))
    }

    /// Holds units and settles them with another cost, which it returns. A denial costs nothing.
    fn hold_alone(&mut self, key: &str, mode: Mode, cost: u64) -> Option<u64> {
        let (limiter, policy) = (self.processes[0].limiter(), mode.policy());
        let (key, charged) = (key.to_owned(), self.rng.below(cost + 2));
        let settled = self.answer_of(0, async move {
            match limiter.hold(key, &policy, cost).await.ok()?.into_result() {
                Ok(hold) => hold.settle(charged).await.ok().map(|_| charged),
                Err(_) => Some(0),
            }
        });
        settled.flatten()
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
