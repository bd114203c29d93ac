//! What is left when all faults and all calls have ended: what is charged, and when it is free again.

use std::{collections::BTreeMap, future::Future};

use super::World;
use crate::{
    callers::{KEYS, SECOND_KEYS, key_name, second_key_name},
    network,
    plan::mode::{Mode, TTL, WINDOW},
    time::{ms, now},
};

#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// When the load had ended, and what was late had arrived.
    pub(crate) quiet_at: u64,
    /// Units that were spent then, by mode and key, and when that was asked. Second keys are in one sum.
    pub(crate) spent: BTreeMap<(Mode, u64), (u64, u64)>,
    pub(crate) second_spent: BTreeMap<Mode, u64>,
    /// What was not free in the end, after how long.
    pub(crate) not_free: Vec<(Mode, String)>,
    pub(crate) free_after: u64,
    /// The names of keys that servers still have long after.
    pub(crate) left_keys: Vec<String>,
    /// What did not answer.
    pub(crate) silent: Vec<(Mode, String)>,
}

/// How long late calls are waited for, in milliseconds.
const SETTLING: u64 = 700;
/// By when all units have to be free, in milliseconds.
const FREE_BY: u64 = WINDOW + TTL + 1_500;
/// How often that is asked.
const ASK_EVERY: u64 = 100;
/// Beyond all windows: by then, servers have no key.
const LONG_AFTER_US: i64 = 2 * 3_600_000_000;

impl World {
    pub(super) fn observe_ending(&mut self) -> Ending {
        for _ in 0..SETTLING {
            self.tick();
        }
        let mut ending = Ending { quiet_at: now(), ..Ending::default() };
        let modes = self.plan.modes.clone();
        for mode in modes.iter().copied() {
            self.ask_spent(mode, &mut ending);
        }
        let to_be_free = modes.into_iter().filter(|mode| !mode.is_long());
        let mut keys: Vec<(Mode, u64)> = to_be_free.flat_map(|mode| (0..KEYS).map(move |key| (mode, key))).collect();
        while now() < ending.quiet_at + FREE_BY {
            keys.retain(|(mode, key)| !self.is_free(*mode, *key));
            if keys.is_empty() {
                break;
            }
            for _ in 0..ASK_EVERY {
                self.tick();
            }
        }
        ending.free_after = now() - ending.quiet_at;
        ending.not_free = keys.into_iter().map(|(mode, key)| (mode, key_name(mode, key))).collect();
        ending.left_keys = network::with(|network| {
            let left = |server: usize, network: &network::Network| {
                let at_us = network.clock_us(server) + LONG_AFTER_US;
                network.servers[server].with_data(|data| data.database.left_at(at_us))
            };
            (0..network.servers.len()).flat_map(|server| left(server, network)).collect::<Vec<_>>()
        })
        .into_iter()
        .map(|key| String::from_utf8_lossy(&key).into_owned())
        .collect();
        ending
    }

    /// Asks what is spent under a mode that counts exactly.
    fn ask_spent(&mut self, mode: Mode, ending: &mut Ending) {
        if !matches!(mode, Mode::Log | Mode::Acquire | Mode::Pair | Mode::Both | Mode::Tally | Mode::Bill) {
            return;
        }
        for key in 0..KEYS {
            let (at, limiter, policy) = (now(), self.processes[0].limiter(), mode.policy());
            let peek = async move { limiter.peek(key_name(mode, key), &policy).await };
            match self.answer_of(peek).map(|answer| answer.map(|decision| decision.available())) {
                Some(Ok(Some(available))) => {
                    let spent = u64::from(mode.policy().limit()).saturating_sub(available.into());
                    ending.spent.insert((mode, key), (spent, at));
                }
                other => ending.silent.push((mode, format!("peek of key {key}: {other:?}"))),
            }
        }
        let Some(policy) = mode.second_policy().filter(|_| mode == Mode::Both) else { return };
        for key in 0..SECOND_KEYS {
            let (limiter, limit, policy) = (self.processes[0].limiter(), policy.limit(), policy.clone());
            let peek = async move { limiter.peek(second_key_name(mode, key), &policy).await };
            if let Some(Ok(decision)) = self.answer_of(peek) {
                let spent = u64::from(limit).saturating_sub(decision.available().unwrap_or(0).into());
                *ending.second_spent.entry(mode).or_default() += spent;
            }
        }
    }

    fn is_free(&mut self, mode: Mode, key: u64) -> bool {
        let (limiter, policy) = (self.processes[0].limiter(), mode.policy());
        // A peek reports the largest shard.
        let most = policy.limit().div_ceil(policy.shards());
        let peek = async move { limiter.peek(key_name(mode, key), &policy).await };
        matches!(self.answer_of(peek), Some(Ok(decision)) if decision.available() == Some(most))
    }

    /// The output of a future that the first process runs. `None` if it takes ten seconds.
    fn answer_of<T: Send + 'static>(&mut self, future: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let limited = async move { tokio::time::timeout(ms(10_000), future).await.ok() };
        let mut task = self.processes[0].runtime(0).spawn(limited);
        while !task.is_finished() {
            self.tick();
        }
        futures_ready(&mut task)
    }
}

/// The output of a task that has finished.
fn futures_ready<T>(task: &mut tokio::task::JoinHandle<Option<T>>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(task).poll(&mut context) {
        std::task::Poll::Ready(Ok(output)) => output,
        _ => None,
    }
}
