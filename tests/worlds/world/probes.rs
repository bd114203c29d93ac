//! Calls after all others: a burst after a quiet time, and a caller that is denied and waits as long as it was told.

use std::collections::BTreeMap;

use tokio::task::JoinSet;
use tollgate::{Error, Limiter, Policy};

use super::{Standing, World, ending::output_of};
use crate::plan::fault::Kind;
use crate::plan::mode::{BLOCK_TTL, LIMIT, Mode, SLOTS, WINDOW};
use crate::time::{ms, now};

#[derive(Clone, Debug, Default)]
pub(crate) struct Probes {
    /// The answers to the checks of a burst after a quiet time, with the time that they took.
    pub(crate) burst: Vec<(u64, Result<(), String>)>,
    /// A caller that was denied alone, by mode.
    pub(crate) waits: BTreeMap<Mode, Wait>,
    /// By mode: what a decision said about a key that one caller alone uses, and what was seen after it.
    pub(crate) standings: BTreeMap<Mode, Standing>,
    /// The slots that are free when a runtime with a slot has ended, and its process has gone on for a while.
    pub(crate) left: Option<u64>,
    /// The slots that are free when a process has dropped all of them, has closed its limiter and has ended at once.
    pub(crate) closed: Option<u64>,
    /// The units that a process has spent from blocks before it has closed its limiter and has ended at once, and those
    /// that are charged then.
    pub(crate) settled: Option<(u64, u64)>,
    /// The same for a runtime that ends, whose process goes on.
    pub(crate) settled_by_others: Option<(u64, u64)>,
    /// The units of a process that was killed with a block, when the block should have ended and left its window.
    pub(crate) kept: Option<u64>,
}

/// A denial, and what the same cost got before and after its Retry-After.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) cost: u64,
    /// When it was asked for and denied.
    pub(crate) asked: u64,
    pub(crate) denied: u64,
    pub(crate) retry_after: u64,
    /// When another process asked shortly before, when it was answered, and whether it was admitted.
    pub(crate) before: Option<(u64, u64, bool)>,
    pub(crate) after: Result<bool, String>,
}

/// How long a slot is held, and how soon it is free, in milliseconds.
const HELD: u64 = 100;
const SOON: u64 = 200;
/// The checks of the burst in each runtime.
const BURST: usize = 8;
/// The most checks until one is denied.
const MOST_CHECKS: usize = 60;
/// A limit of a long window, and the bursts of checks that spend from blocks of it.
const MANY: u64 = 10_000;
const LONG: u64 = 10 * WINDOW;
const BURSTS: u64 = 20;
/// How long a new process may wait for its first connection, in milliseconds.
const FIRST_DIAL: u64 = 400;
/// How long before Retry-After another process asks, beside the way, in milliseconds.
const SHORTLY: u64 = 8;

impl World {
    /// Nobody has called for some time.
    pub(super) fn probe(&mut self) -> Probes {
        let burst = self.burst();
        let exact = |mode: &Mode| matches!(mode, Mode::Log | Mode::Bucket | Mode::Window | Mode::Counter);
        let modes: Vec<Mode> = self.plan.modes.iter().copied().filter(exact).collect();
        let waits = modes.into_iter().filter_map(|mode| Some((mode, self.wait(mode)?))).collect();
        let left = self.end_a_runtime();
        let closed = self.close();
        let settled_by_others = self.end_a_runtime_with_blocks();
        let kept = self.kill_with_blocks();
        let settled = self.close_with_blocks();
        if closed.is_some() || settled.is_some() {
            self.pass(FIRST_DIAL);
        }
        let stands = |mode: &Mode| exact(mode) || matches!(mode, Mode::Shards | Mode::Holds);
        let modes: Vec<Mode> = self.plan.modes.iter().copied().filter(stands).collect();
        let standings = modes.into_iter().filter_map(|mode| Some((mode, self.stand(mode)?))).collect();
        Probes { burst, waits, standings, left, closed, settled, settled_by_others, kept }
    }

    /// A runtime ends that holds a slot. Its process asks something else on another runtime, and later for the slots.
    fn end_a_runtime(&mut self) -> Option<u64> {
        let forgets = self.plan.faults.iter().any(|fault| fault.kind == Kind::HalfOpen);
        let process = (0..self.processes.len()).find(|process| self.processes[*process].count_runtimes() > 1)?;
        if forgets || !self.plan.modes.contains(&Mode::Slots) {
            return None;
        }
        let (limiter, policy) = (self.processes[process].limiter(), Mode::Slots.policy());
        let last = self.processes[process].count_runtimes() - 1;
        let (hold, of_hold) = (limiter.clone(), policy.clone());
        let holder = self.spawn(process, last, async move {
            let _slot = hold.hold("left", &of_hold, 1).await.ok()?.into_result().ok()?;
            std::future::pending::<Option<()>>().await
        });
        self.pass(HELD);
        // The task ends with its runtime.
        let holds = !holder.is_finished();
        if !holds || !self.processes[process].end_last_runtime() {
            return None;
        }
        let other = limiter.peek("other", &policy);
        drop(self.answer_of(process, other)?.ok()?);
        self.pass(SOON);
        let peek = limiter.peek("left", &policy);
        self.answer_of(process, peek)?.ok()?.available()
    }

    /// The last process drops the handles of all slots, closes its limiter and ends. Another one looks at the slots.
    fn close(&mut self) -> Option<u64> {
        let last = self.processes.len() - 1;
        // Nothing has revealed yet that connections are forgotten.
        let forgets = self.plan.faults.iter().any(|fault| fault.kind == Kind::HalfOpen);
        if last == 0 || forgets || !self.plan.modes.contains(&Mode::Slots) {
            return None;
        }
        let (limiter, policy) = (self.processes[last].limiter(), Mode::Slots.policy());
        let closed = self.answer_of(last, async move {
            let mut slots = vec![];
            for _ in 0..SLOTS {
                slots.push(limiter.hold("closed", &policy, 1).await.ok()?.into_result().ok()?);
            }
            drop(slots);
            limiter.close().await;
            Some(())
        });
        closed.flatten()?;
        self.restart(last);
        let peek = self.processes[0].limiter().peek("closed", &Mode::Slots.policy());
        self.answer_of(0, peek)?.ok()?.available()
    }

    /// The last process spends units from blocks, closes its limiter and ends. Another one looks at what is charged.
    fn close_with_blocks(&mut self) -> Option<(u64, u64)> {
        let last = self.last_with_blocks()?;
        let limiter = self.processes[last].limiter();
        let spent = self.answer_of(last, async move {
            let spent = spend_from_blocks(&limiter, "closed", LONG).await;
            limiter.close().await;
            spent
        });
        let spent = spent.flatten()?;
        self.restart(last);
        Some((spent, self.charged(0, "closed", LONG)?))
    }

    /// The last process is killed while it has a block, which is charged when it has ended. Another one looks at what
    /// is left of it a window later.
    fn kill_with_blocks(&mut self) -> Option<u64> {
        const SHORT: u64 = 2 * WINDOW;
        let last = self.last_with_blocks()?;
        let limiter = self.processes[last].limiter();
        self.answer_of(last, async move { spend_from_blocks(&limiter, "killed", SHORT).await }).flatten()?;
        self.restart(last);
        self.pass(BLOCK_TTL + SHORT + SOON);
        self.charged(0, "killed", SHORT)
    }

    /// A runtime ends that has a block. Its process asks something else on another runtime.
    fn end_a_runtime_with_blocks(&mut self) -> Option<(u64, u64)> {
        self.last_with_blocks()?;
        let process = (0..self.processes.len()).find(|process| self.processes[*process].count_runtimes() > 1)?;
        let (limiter, last) = (self.processes[process].limiter(), self.processes[process].count_runtimes() - 1);
        let mut spender = self.spawn(process, last, async move { spend_from_blocks(&limiter, "ended", LONG).await });
        while !spender.is_finished() {
            self.tick();
        }
        let spent = output_of(&mut spender).flatten()?;
        if !self.processes[process].end_last_runtime() {
            return None;
        }
        self.charged(process, "other", LONG)?;
        self.pass(SOON);
        Some((spent, self.charged(process, "ended", LONG)?))
    }

    /// The last process, if blocks are tried with it.
    fn last_with_blocks(&mut self) -> Option<usize> {
        let last = self.processes.len() - 1;
        let forgets = self.plan.faults.iter().any(|fault| fault.kind == Kind::HalfOpen);
        if last == 0 || forgets || !self.plan.modes.contains(&Mode::Lease) {
            return None;
        }
        self.pass(FIRST_DIAL);
        Some(last)
    }

    /// The units of a key of [`policy_of_blocks`] that are charged, as a process sees it.
    fn charged(&mut self, process: usize, key: &'static str, window: u64) -> Option<u64> {
        let limiter = self.processes[process].limiter();
        let decision = self.answer_of(process, async move { limiter.peek(key, &policy_of_blocks(window)).await })?;
        Some(MANY.saturating_sub(decision.ok()?.available()?))
    }

    fn burst(&mut self) -> Vec<(u64, Result<(), String>)> {
        let policy = Policy::new("burst", 1_000, std::time::Duration::from_secs(1)).expect("the policy is valid");
        let mut tasks = vec![];
        for process in 0..self.processes.len() {
            for number in 0..BURST * self.processes[process].count_runtimes() {
                let (limiter, policy) = (self.processes[process].limiter(), policy.clone());
                tasks.push(self.spawn(process, number / BURST, async move {
                    let asked = now();
                    let result = limiter.check(format!("burst-{}", number % 3), &policy, 1).await;
                    (now() - asked, result.map(|_| ()).map_err(|error| error.to_string()))
                }));
            }
        }
        while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            self.tick();
        }
        let silence = || (10_000, Err("no answer".to_owned()));
        tasks.iter_mut().map(|task| output_of(task).unwrap_or_else(silence)).collect()
    }

    /// Spends a key of its own until a check is denied, and waits. `None` if none is denied.
    fn wait(&mut self, mode: Mode) -> Option<Wait> {
        for _ in 0..MOST_CHECKS {
            let cost = 1 + self.rng.below(4);
            let asked = now();
            let (admitted, retry_after) = self.check_alone(0, mode, cost).ok()?;
            if !admitted {
                return Some(self.wait_after(mode, cost, asked, retry_after?));
            }
            let pause = self.rng.below(2 * WINDOW / LIMIT / 3);
            self.pass(pause);
        }
        None
    }

    fn wait_after(&mut self, mode: Mode, cost: u64, asked: u64, retry_after: u64) -> Wait {
        let denied = now();
        let last = self.processes.len() - 1;
        let way = 2 * (self.plan.delay + self.plan.jitter);
        // A clock may be slow or fast by 1 %.
        let early = (asked + retry_after - retry_after / 80).saturating_sub(way + SHORTLY);
        let mut before = None;
        if last > 0 && early > denied {
            self.pass(early - denied);
            let from = now();
            let result = self.check_alone(last, mode, cost);
            before = result.ok().map(|(admitted, _)| (from, now(), admitted));
        }
        let until = denied + retry_after + retry_after / 80 + 2;
        self.pass(until.saturating_sub(now()));
        let after = self.check_alone(0, mode, cost).map(|(admitted, _)| admitted).map_err(|error| error.to_string());
        Wait { cost, asked, denied, retry_after, before, after }
    }

    /// Whether a check is admitted, and its Retry-After in milliseconds, rounded up.
    fn check_alone(&mut self, process: usize, mode: Mode, cost: u64) -> Result<(bool, Option<u64>), Error> {
        let (limiter, policy) = (self.processes[process].limiter(), mode.policy());
        let check = async move { limiter.check("alone", &policy, cost).await };
        let decision = self.answer_of(process, check).expect("a check has a deadline")?;
        let retry_after =
            decision.retry_after().map(|wait| u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(0));
        Ok((decision.is_allowed(), retry_after))
    }
}

/// A window that is long beside the way, so that a key is hot soon.
fn policy_of_blocks(window: u64) -> Policy {
    let policy = Policy::new("blocks", MANY, ms(window)).and_then(|policy| policy.with_lease(MANY / 10).validated());
    policy.expect("the policy is valid")
}

/// Spends units of a key, from blocks if it can. Returns how many.
async fn spend_from_blocks(limiter: &Limiter, key: &'static str, window: u64) -> Option<u64> {
    for _ in 0..BURSTS {
        let mut burst = JoinSet::new();
        for _ in 0..BURST {
            let limiter = limiter.clone();
            burst.spawn(async move { limiter.check(key, &policy_of_blocks(window), 1).await });
        }
        while let Some(result) = burst.join_next().await {
            result.ok()?.ok()?.into_result().ok()?;
        }
    }
    Some(BURSTS * BURST as u64)
}
