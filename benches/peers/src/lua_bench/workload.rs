//! One script in one scenario: calls the script in a steady state and reads its execution time from Redis.

use std::time::{Duration, Instant};

use redis::{Cmd, Connection, Value};

use super::subject::Subject;
use crate::Result;
use crate::scripts::{self, Quota};
use crate::stats::{self, CommandStats};

/// The state of a key, and the checks on it.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Number of requests in the window. Only a log's state depends on this.
    pub fill: u64,
    pub cost: u64,
    pub allowed: bool,
}

/// A subject with filled keys, ready to be called.
pub struct Workload {
    pub subject: Subject,
    scenario: Scenario,
    hash: String,
    keys: Vec<String>,
    next: usize,
    quota: Quota,
    /// Advance of the script's clock between two calls for one key.
    step_us: u64,
    now_us: u64,
}

/// Long enough that no key expires: TTLs follow the server's clock, while the benchmark sets the script's clock.
const WINDOW_US: u64 = 3_600_000_000;
/// 2026-01-01 in microseconds since the Unix epoch.
const START_US: u64 = 1_767_225_600_000_000;

/// The time per decision in one slice.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Microseconds of execution in Redis per decision, from commandstats.
    pub redis_us: f64,
    /// Microseconds per decision at a client that sends calls in pipelines.
    pub client_us: f64,
}

impl Workload {
    /// Creates and fills the keys.
    ///
    /// A log has `fill` requests in its window and has reached its limit; one request expires as one arrives. Every
    /// other script has one request. Its limit is out of reach if checks are to be allowed; otherwise one request
    /// reaches it.
    pub fn prepare(connection: &mut Connection, subject: Subject, scenario: Scenario, keys: usize) -> Result<Self> {
        let Scenario { fill, cost, allowed } = scenario;
        let keys = (0..keys.max(subject.batch)).map(|key| format!("t:{{user:{key}}}:{}", subject.name)).collect();
        let hash = subject.load(connection)?;
        let limit = match (subject.is_log(), allowed) {
            (true, _) => fill * cost,
            (false, true) => 1_000_000_000,
            (false, false) => cost,
        };
        let step_us = WINDOW_US / fill;
        let quota = Quota { limit, window_us: step_us * fill };
        let mut workload = Self { subject, scenario, hash, keys, next: 0, quota, step_us, now_us: START_US };
        workload.fill(connection)?;
        Ok(workload)
    }

    fn fill(&mut self, connection: &mut Connection) -> Result<()> {
        if !self.subject.is_log() {
            let mut pipeline = redis::pipe();
            for key in &self.keys {
                pipeline.add_command(self.call(&[key]));
            }
            return Ok(pipeline.exec(connection)?);
        }
        // One key is filled for more than a window, until its state is steady. The other keys are copies.
        let calls = self.scenario.fill + self.scenario.fill.min(1_000);
        let mut sent = 0;
        while sent < calls {
            let mut pipeline = redis::pipe();
            for _ in 0..(calls - sent).min(500) {
                self.now_us += self.step_us;
                pipeline.add_command(self.call(&[&self.keys[0]]));
                sent += 1;
            }
            let replies: Vec<Value> = pipeline.query(connection)?;
            if !replies.iter().all(|reply| self.subject.verdicts(reply, 1).into_iter().all(|allowed| allowed)) {
                return Err(format!("{}: a check was denied while its key was filled", self.subject.name).into());
            }
        }
        for key in &self.keys[1..] {
            redis::cmd("COPY").arg(&self.keys[0]).arg(key).arg("REPLACE").exec(connection)?;
        }
        Ok(())
    }

    /// Bytes of one key, as reported by MEMORY USAGE.
    pub fn bytes(&self, connection: &mut Connection) -> Result<u64> {
        let key = &self.keys[0];
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        if !self.subject.is_log() {
            // The key of a GCRA lives for a millisecond.
            pipeline.add_command(self.call(&[key])).ignore();
        }
        pipeline.cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0);
        let (bytes,): (Option<u64>,) = pipeline.query(connection)?;
        match bytes {
            Some(bytes) => Ok(bytes),
            // The two-key counter adds the number of a window to the key. Two such keys exist in the steady state.
            None => {
                let names: Vec<String> = redis::cmd("KEYS").arg(format!("{key}:*")).query(connection)?;
                let name = names.first().ok_or("the script wrote no key")?;
                Ok(2 * redis::cmd("MEMORY").arg("USAGE").arg(name).query::<u64>(connection)?)
            }
        }
    }

    /// Calls the script for at least `time`. Returns an error if a verdict differs from the scenario.
    pub fn slice(&mut self, connection: &mut Connection, time: Duration) -> Result<Timing> {
        stats::reset_commandstats(connection)?;
        let (mut decisions, mut client) = (0_u64, Duration::ZERO);
        while client < time {
            let mut pipeline = redis::pipe();
            for _ in 0..64 {
                pipeline.add_command(self.next_call());
            }
            let start = Instant::now();
            let replies: Vec<Value> = pipeline.query(connection)?;
            client += start.elapsed();
            for reply in &replies {
                for allowed in self.subject.verdicts(reply, self.subject.batch) {
                    if allowed != self.scenario.allowed {
                        return Err(format!("{}: unexpected verdict at {:?}", self.subject.name, self.scenario).into());
                    }
                    decisions += 1;
                }
            }
        }
        let stats = CommandStats::read(connection)?;
        Ok(Timing {
            redis_us: stats.usec as f64 / decisions as f64,
            client_us: client.as_secs_f64() * 1e6 / decisions as f64,
        })
    }

    fn next_call(&mut self) -> Cmd {
        if self.next + self.subject.batch > self.keys.len() {
            self.next = 0;
        }
        if self.next == 0 && self.scenario.allowed {
            self.now_us += self.step_us;
        }
        let keys: Vec<&str> = self.keys[self.next..self.next + self.subject.batch].iter().map(String::as_str).collect();
        let call = self.call(&keys);
        self.next += self.subject.batch;
        call
    }

    fn call(&self, keys: &[&str]) -> Cmd {
        self.subject.call(&self.hash, keys, Some(self.now_us), self.quota, self.scenario.cost)
    }
}

impl Scenario {
    /// Whether filling is fast enough: a sorted set with one member per unit gets at most a million members.
    pub fn can_be_held_by(self, subject: &Subject) -> bool {
        subject.code != scripts::SORTED_SET_LOG || self.fill * self.cost <= 1_000_000
    }
}
