//! Checks of keys drawn at random, in the three states in which a log costs a different amount of time.

use redis::{Cmd, Connection, Value};

use super::subject::{Hosted, Subject};
use crate::stats::{self, CommandStats, CpuTime};
use crate::{Result, random::Random, scripts::Quota};

/// The state of the keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Traffic {
    /// No request leaves the window: each check adds a record. Starts with about five requests of each key.
    Growth,
    /// As many requests leave the window as arrive: about fifty requests of each key are in it.
    Steady,
    /// The limit of 20 is reached: all checks are denied.
    Denied,
}

/// Number of keys.
pub const KEYS: usize = 10_000;
/// Number of keys that get the requests of a steady or denied state; the other keys are copies.
const MODELS: usize = 64;
/// Requests of a key in the window in the steady state, on average.
const STEADY_FILL: usize = 50;
/// Checks per key before the measurement: in growth the initial state, otherwise warm-up.
const WARM_UP: usize = 5;
/// 2026-01-01 in microseconds since the Unix epoch.
const START_US: u64 = 1_767_225_600_000_000;
const HOUR_US: u64 = 3_600_000_000;

impl Traffic {
    pub const ALL: [Self; 3] = [Self::Growth, Self::Steady, Self::Denied];

    pub fn name(self) -> &'static str {
        match self {
            Self::Growth => "growth",
            Self::Steady => "steady",
            Self::Denied => "denied",
        }
    }

    /// Windows are long, because TTLs follow the server's clock while the clock of steady traffic is faster.
    fn quota(self) -> Quota {
        match self {
            Self::Growth | Self::Steady => Quota { limit: 1_000, window_us: HOUR_US },
            // No unit comes back during the measurement, also of windows that start at fixed times.
            Self::Denied => Quota { limit: 20, window_us: 30 * 24 * HOUR_US },
        }
    }
}

/// A subject under load.
pub struct Load<'a> {
    subject: Subject,
    connection: &'a mut Connection,
    hash: String,
    traffic: Traffic,
    keys: Vec<String>,
    random: Random,
    /// The script's clock in steady traffic. The other states use the server's clock, as the store does by default.
    now_us: u64,
}

/// The time per check in one slice.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Microseconds of execution, from commandstats.
    pub redis_us: f64,
    /// Microseconds of CPU time of the server's main thread, which also reads and parses calls and writes replies.
    pub cpu_us: f64,
}

impl<'a> Load<'a> {
    /// Brings all keys of an empty server into the state.
    pub fn prepare(hosted: &'a mut Hosted, traffic: Traffic) -> Result<Self> {
        let Hosted { subject, connection, .. } = hosted;
        redis::cmd("FLUSHALL").exec(connection)?;
        // As long as the keys that the store writes by default.
        let keys = (0..KEYS).map(|key| format!("tollgate:{{${key:022x}}}:per-client:l5:1m")).collect();
        let hash = subject.load(connection)?;
        let random = Random::new(traffic as u64);
        let mut load = Self { subject: *subject, connection, hash, traffic, keys, random, now_us: START_US };
        match traffic {
            Traffic::Growth => {}
            Traffic::Steady if load.subject.is_log() => {
                // Longer than a window, so that the first requests have left it.
                load.checks(MODELS * STEADY_FILL * 3 / 2, MODELS)?;
                load.copy_models()?;
            }
            Traffic::Steady => {}
            Traffic::Denied if load.subject.is_log() => {
                for _ in 0..traffic.quota().limit {
                    load.charge(MODELS, 1)?;
                }
                load.copy_models()?;
            }
            Traffic::Denied => load.charge(KEYS, traffic.quota().limit)?,
        }
        load.checks(KEYS * WARM_UP, KEYS)?;
        Ok(load)
    }

    /// Makes `checks` checks, rounded up to whole calls.
    pub fn slice(&mut self, checks: usize) -> Result<Timing> {
        stats::reset_commandstats(self.connection)?;
        let cpu = CpuTime::read(self.connection)?;
        let decisions = self.checks(checks, KEYS)?;
        let cpu_us = CpuTime::read(self.connection)?.us_since(cpu) / decisions as f64;
        Ok(Timing { redis_us: CommandStats::read(self.connection)?.us_per_decision(decisions), cpu_us })
    }

    /// Checks random keys among the first `keys`, and that each verdict is the one of the state.
    fn checks(&mut self, checks: usize, keys: usize) -> Result<u64> {
        let expected = self.traffic != Traffic::Denied;
        let (calls, mut decisions) = (checks.div_ceil(self.subject.batch), 0);
        let mut sent = 0;
        while sent < calls {
            let size = (calls - sent).min(64);
            let pipeline = (0..size).map(|_| (self.random_call(keys), self.subject.batch)).collect();
            decisions += self.send(pipeline, expected)?;
            sent += size;
        }
        Ok(decisions)
    }

    fn random_call(&mut self, keys: usize) -> Cmd {
        // The window holds `STEADY_FILL` requests of each key on average.
        let steps = self.traffic.quota().window_us / (STEADY_FILL * keys) as u64;
        self.now_us += steps * self.subject.batch as u64;
        let now_us = (self.traffic == Traffic::Steady).then_some(self.now_us);
        let drawn: Vec<usize> = (0..self.subject.batch).map(|_| self.random.below(keys)).collect();
        let keys: Vec<&str> = drawn.into_iter().map(|key| self.keys[key].as_str()).collect();
        self.subject.call(&self.hash, &keys, now_us, self.traffic.quota(), 1)
    }

    /// Charges each of the first `keys` keys, which fits.
    fn charge(&mut self, keys: usize, cost: u64) -> Result<()> {
        let calls = self.keys[..keys].chunks(self.subject.batch).map(|keys| {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            (self.subject.call(&self.hash, &keys, None, self.traffic.quota(), cost), keys.len())
        });
        let pipeline = calls.collect();
        self.send(pipeline, true)?;
        Ok(())
    }

    fn copy_models(&mut self) -> Result<()> {
        let mut pipeline = redis::pipe();
        for (index, key) in self.keys.iter().enumerate().skip(MODELS) {
            pipeline.cmd("COPY").arg(&self.keys[index % MODELS]).arg(key);
        }
        Ok(pipeline.exec(self.connection)?)
    }

    /// Sends calls, each with its number of checks, in a pipeline; returns the number of all checks.
    fn send(&mut self, calls: Vec<(Cmd, usize)>, expected: bool) -> Result<u64> {
        let mut pipeline = redis::pipe();
        let mut checks = Vec::new();
        for (call, checks_of_call) in calls {
            pipeline.add_command(call);
            checks.push(checks_of_call);
        }
        let replies: Vec<Value> = pipeline.query(self.connection)?;
        let verdicts: Vec<bool> =
            replies.iter().zip(checks).flat_map(|(reply, checks)| self.subject.verdicts(reply, checks)).collect();
        if verdicts.contains(&!expected) {
            let (name, traffic) = (self.subject.name, self.traffic.name());
            let verdict = if expected { "denied" } else { "allowed" };
            return Err(format!("{name}: a check was {verdict} in the state {traffic}").into());
        }
        Ok(verdicts.len() as u64)
    }
}
