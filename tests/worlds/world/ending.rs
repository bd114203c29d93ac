//! What is left when all faults and all calls have ended: what is charged, and when it is free again.

use std::task::{Context, Poll, Waker};
use std::{collections::BTreeMap, future::Future, pin::Pin};

use tokio::task::JoinHandle;
use tollgate::{Key, Policy, limiter::CheckFuture};

use super::World;
use crate::keys::{KEYS, SECOND_KEYS, key_name, second_key_name};
use crate::plan::fault::{Fault, Kind};
use crate::plan::mode::{Mode, TTL, WINDOW};
use crate::time::{ms, now};
use crate::{network, process::Process, server::database::Database, service};

/// A count: its key, and the process that is asked.
#[derive(Clone, Copy, Debug)]
struct Count {
    process: usize,
    key: u64,
}

impl Count {
    fn key_in(self, mode: Mode) -> Key {
        let name = key_name(mode, self.key);
        if mode.is_web() { service::key_of(&name) } else { Key::from(name) }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// When the load had ended, and what was late had arrived.
    pub(crate) quiet_at: u64,
    /// Units that were spent then, by mode and key, and when that was asked. Second keys are in one sum.
    pub(crate) spent: BTreeMap<(Mode, u64), (u64, u64)>,
    pub(crate) second_spent: BTreeMap<Mode, u64>,
    /// The slots that were not free soon after all calls had ended.
    pub(crate) kept_slots: Vec<(Mode, String)>,
    /// What was not free in the end, after how long.
    pub(crate) not_free: Vec<(Mode, String)>,
    /// How long after `quiet_at` each of the others was seen to be free.
    pub(crate) freed: Vec<(Mode, String, u64)>,
    pub(crate) free_after: u64,
    /// The names of keys that servers still have when all windows and times-to-live are over.
    pub(crate) left_keys: Vec<String>,
    /// Connections of each process to each server.
    pub(crate) connections: Vec<Vec<usize>>,
    /// The tasks of each process in a quiet time.
    pub(crate) tasks: Vec<usize>,
    /// The runtimes that each process still has.
    pub(crate) runtimes: Vec<usize>,
    /// What did not answer.
    pub(crate) silent: Vec<(Mode, String)>,
}

/// The length of the quiet time at the end, in milliseconds.
const QUIET: u64 = 1_500;
/// After how long slots are looked at first, in milliseconds: longer than the end of a slot takes that has overtaken
/// the question for it, and is sent again.
const SOON: u64 = 400;
/// How long late calls are waited for, in milliseconds.
const SETTLING: u64 = 700;
/// How long nothing is asked after the last fault, in milliseconds: connections may be on their way.
const RECOVERY: u64 = 1_500;
/// By when all units have to be free, in milliseconds.
const FREE_BY: u64 = WINDOW + TTL + 1_500;
/// How often that is asked.
const ASK_EVERY: u64 = 100;
/// Beyond all windows and receipts, and beyond the steps of clocks: by then, servers have no key.
const LONG_AFTER_US: i64 = 80_000_000;
/// How often a peek is repeated if connections were forgotten, which the silence of some calls reveals.
const PEEKS: usize = 20;

impl World {
    pub(super) fn observe_ending(&mut self, met: &[Fault]) -> Ending {
        let (modes, ended_at) = (self.plan.modes.clone(), now());
        self.pass(SOON);
        let slots: Vec<Mode> = modes.iter().copied().filter(|mode| mode.is_slots()).collect();
        let kept_slots = slots.into_iter().flat_map(|mode| self.kept_slots(mode)).collect();
        let settled_at = (ended_at + SETTLING).max(self.plan.healed_at() + RECOVERY);
        self.pass(settled_at.saturating_sub(now()));
        let mut ending = Ending { quiet_at: now(), kept_slots, ..Ending::default() };
        for mode in modes.iter().copied() {
            self.ask_spent(mode, &mut ending);
        }
        let to_be_free = modes.into_iter().filter(|mode| !mode.is_long());
        let mut keys: Vec<(Mode, Count)> =
            to_be_free.flat_map(|mode| self.counts(mode).into_iter().map(move |count| (mode, count))).collect();
        while now() < ending.quiet_at + FREE_BY {
            keys.retain(|(mode, count)| {
                let is_free = self.is_free(*mode, *count);
                if is_free {
                    ending.freed.push((*mode, key_name(*mode, count.key), now() - ending.quiet_at));
                }
                !is_free
            });
            if keys.is_empty() {
                break;
            }
            self.pass(ASK_EVERY);
        }
        ending.free_after = now() - ending.quiet_at;
        ending.not_free = keys.into_iter().map(|(mode, count)| (mode, key_name(mode, count.key))).collect();
        let stepped: i64 = met.iter().filter_map(|fault| fault.kind.clock_step()).map(i64::abs).sum();
        ending.left_keys = left_keys(LONG_AFTER_US + stepped * 1_000_000);
        // A limiter whose handles are dropped sends the ends of its holds first.
        if met.iter().any(|fault| fault.kind == Kind::DropHandles) {
            self.pass((ending.quiet_at + FREE_BY).saturating_sub(now()));
        }
        ending.connections = (0..self.processes.len()).map(network::connections_of).collect();
        ending.runtimes = self.processes.iter().map(Process::count_runtimes).collect();
        ending
    }

    /// Lets a quiet time pass. Returns the fewest tasks that each process had meanwhile: those that stay. Others are on
    /// their way, such as a question to each sentinel once a second.
    pub(super) fn be_quiet(&mut self) -> Vec<usize> {
        let mut fewest = vec![usize::MAX; self.processes.len()];
        for _ in 0..QUIET {
            self.tick();
            for (fewest, process) in fewest.iter_mut().zip(&self.processes) {
                *fewest = process.count_tasks().min(*fewest);
            }
        }
        fewest
    }

    pub(super) fn pass(&mut self, time: u64) {
        (0..time).for_each(|_| self.tick());
    }

    /// Asks what is spent under a mode that counts exactly.
    fn ask_spent(&mut self, mode: Mode, ending: &mut Ending) {
        let is_counted = matches!(mode, Mode::Log | Mode::Acquire | Mode::Parts | Mode::Pair | Mode::Both)
            || matches!(mode, Mode::Tally | Mode::Bill | Mode::FirstOf)
            || mode.is_leased()
            || mode.is_web() && !mode.is_slots() && mode != Mode::WebLocal;
        if !is_counted {
            return;
        }
        for count in self.counts(mode) {
            let at = now();
            if let Some(spent) = self.spent_of(count.process, &count.key_in(mode), &mode.policy(), mode, ending) {
                ending.spent.insert((mode, count.key), (spent, at));
            }
        }
        let Some(policy) = mode.second_policy().filter(|_| mode == Mode::Both) else { return };
        for key in 0..SECOND_KEYS {
            let spent = self.spent_of(0, &Key::from(second_key_name(mode, key)), &policy, mode, ending);
            *ending.second_spent.entry(mode).or_default() += spent.unwrap_or(0);
        }
    }

    fn spent_of(&mut self, process: usize, key: &Key, policy: &Policy, mode: Mode, ending: &mut Ending) -> Option<u64> {
        let forgets = self.plan.faults.iter().any(|fault| fault.kind == Kind::HalfOpen);
        for _ in 0..if forgets { PEEKS } else { 1 } {
            let peek = self.peek(process, key, policy, mode);
            match self.answer_of(process, peek).map(|answer| answer.map(|decision| decision.available())) {
                Some(Ok(Some(available))) => {
                    return Some(policy.limit().saturating_sub(available));
                }
                _ if forgets => self.pass(ASK_EVERY),
                other => ending.silent.push((mode, format!("peek of {key:?}: {other:?}"))),
            }
        }
        None
    }

    /// Where the counts of a mode are.
    fn counts(&self, mode: Mode) -> Vec<Count> {
        let counts = |process: usize, base: u64| (base..base + KEYS).map(move |key| Count { process, key });
        match mode.is_memory() {
            true => (0..self.processes.len())
                .flat_map(|process| counts(process, self.processes[process].first_key()))
                .collect(),
            false => counts(0, 0).collect(),
        }
    }

    fn peek(&self, process: usize, key: &Key, policy: &Policy, mode: Mode) -> CheckFuture {
        let process = &self.processes[process];
        let limiter = if mode.is_memory() { process.site().memory.clone() } else { process.limiter() };
        limiter.peek(key.clone(), policy)
    }

    /// The counts of a mode that are not free now.
    fn kept_slots(&mut self, mode: Mode) -> Vec<(Mode, String)> {
        let kept = self.counts(mode).into_iter().filter(|count| !self.is_free(mode, *count));
        kept.map(|count| (mode, key_name(mode, count.key))).collect()
    }

    fn is_free(&mut self, mode: Mode, count: Count) -> bool {
        let policy = mode.policy();
        // A peek reports the largest shard.
        let most = policy.capacity();
        let peek = self.peek(count.process, &count.key_in(mode), &policy, mode);
        matches!(self.answer_of(count.process, peek), Some(Ok(decision)) if decision.available() == Some(most))
    }

    /// The output of a future that a process runs. `None` if it takes ten seconds.
    pub(super) fn answer_of<T: Send + 'static>(
        &mut self,
        process: usize,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut task = self.spawn(process, 0, future);
        while !task.is_finished() {
            self.tick();
        }
        output_of(&mut task)
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        process: usize,
        runtime: usize,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        let limited = async move { tokio::time::timeout(ms(10_000), future).await.ok() };
        self.processes[process].runtime(runtime).spawn(limited)
    }
}

/// The keys that servers will still have after this time.
fn left_keys(after_us: i64) -> Vec<String> {
    let left = network::with(|network| {
        let left = |server: usize| {
            let at_us = network.clock_us(server) + after_us;
            // Windows of a calendar are longer than a world: that they end is enough.
            let lasts = |database: &mut Database, key: &[u8]| of_calendar(key) && database.expires(key);
            network.servers[server].with_data(|data| {
                let left = data.database.left_at(at_us).into_iter();
                left.filter(|key| !lasts(&mut data.database, key)).collect::<Vec<_>>()
            })
        };
        (0..network.servers.len()).flat_map(left).collect::<Vec<_>>()
    });
    left.into_iter().map(|key| String::from_utf8_lossy(&key).into_owned()).collect()
}

/// Whether a key is the count of a mode with a calendar.
fn of_calendar(key: &[u8]) -> bool {
    let name = Mode::Calendar.name().as_bytes();
    key.windows(name.len()).any(|part| part == name)
}

/// The output of a task that has finished.
pub(super) fn output_of<T>(task: &mut JoinHandle<Option<T>>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(task).poll(&mut context) {
        Poll::Ready(Ok(output)) => output,
        _ => None,
    }
}
