//! One script at one fill: calls it in a steady state and lets Redis tell what that took.

use std::time::{Duration, Instant};

use redis::{Cmd, Connection, Script, Value};

use crate::{
    Result,
    scripts::{self, Algorithm, Quota},
    stats::{self, CommandStats},
};

/// A script and its calling convention.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub name: &'static str,
    pub code: &'static str,
    pub form: Form,
    /// Checks in one call, each for a key of its own.
    pub batch: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Our protocol.
    Ours(Algorithm),
    /// One key, one verdict.
    Plain,
}

/// What is asked of a subject.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Requests in the window, for a log.
    pub fill: u64,
    pub cost: u32,
    pub allowed: bool,
}

/// A subject with keys in the state that the situation describes.
pub struct Workload {
    pub subject: Subject,
    situation: Situation,
    hash: String,
    keys: Vec<String>,
    next: usize,
    quota: Quota,
    /// By how much the clock advances between two calls for one key.
    step_us: u64,
    now_us: u64,
}

/// Long, so that no TTL, which runs by the server's clock, ends while the client's clock is used.
const WINDOW_US: u64 = 3_600_000_000;
/// 2026-01-01.
const START_US: u64 = 1_767_225_600_000_000;

/// One slice's outcome.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Redis' own time per decision, from commandstats.
    pub redis_us: f64,
    /// Time per decision seen by a client that sends calls in pipelines.
    pub client_us: f64,
}

impl Workload {
    /// Fills keys so that a log has `fill` requests in its window, one leaves as one comes, and the limit is reached.
    /// What has no log (`counts`) is not filled: its limit is out of reach, or reached at once.
    pub fn prepare(connection: &mut Connection, subject: Subject, situation: Situation, keys: usize) -> Result<Self> {
        let Situation { fill, cost, allowed } = situation;
        let keys = (0..keys.max(subject.batch)).map(|key| format!("t:{{user:{key}}}:{}", subject.name)).collect();
        let hash = Script::new(subject.code).get_hash().to_owned();
        redis::cmd("SCRIPT").arg("LOAD").arg(subject.code).exec(connection)?;
        let limit = match (subject.is_log(), allowed) {
            (true, _) => u32::try_from(fill * u64::from(cost))?,
            (false, true) => 1_000_000_000,
            (false, false) => cost,
        };
        let step_us = WINDOW_US / fill;
        let quota = Quota { limit, window_us: step_us * fill };
        let mut workload = Self { subject, situation, hash, keys, next: 0, quota, step_us, now_us: START_US };
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
        // One key, then copies of it. More than one window, so that the state is the steady one.
        let calls = self.situation.fill + self.situation.fill.min(1_000);
        let mut made = 0;
        while made < calls {
            let mut pipeline = redis::pipe();
            for _ in 0..(calls - made).min(500) {
                self.now_us += self.step_us;
                pipeline.add_command(self.call(&[&self.keys[0]]));
                made += 1;
            }
            let replies: Vec<Value> = pipeline.query(connection)?;
            if !replies.iter().all(|reply| self.verdicts(reply).into_iter().all(|allowed| allowed)) {
                return Err(format!("{}: a check of the filling was denied", self.subject.name).into());
            }
        }
        for key in &self.keys[1..] {
            redis::cmd("COPY").arg(&self.keys[0]).arg(key).arg("REPLACE").exec(connection)?;
        }
        Ok(())
    }

    /// Bytes of one key, by MEMORY USAGE.
    pub fn bytes(&self, connection: &mut Connection) -> Result<u64> {
        let key = &self.keys[0];
        let bytes: Option<u64> = redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query(connection)?;
        match bytes {
            Some(bytes) => Ok(bytes),
            // The counter in two keys makes names of its own: steadily two of them.
            None => {
                let names: Vec<String> = redis::cmd("KEYS").arg(format!("{key}:*")).query(connection)?;
                let name = names.first().ok_or("no key was written")?;
                Ok(2 * redis::cmd("MEMORY").arg("USAGE").arg(name).query::<u64>(connection)?)
            }
        }
    }

    /// Runs for at least so long.
    pub fn slice(&mut self, connection: &mut Connection, time: Duration) -> Result<Cost> {
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
                for allowed in self.verdicts(reply) {
                    if allowed != self.situation.allowed {
                        return Err(format!("{}: unexpected verdict at {:?}", self.subject.name, self.situation).into());
                    }
                    decisions += 1;
                }
            }
        }
        let stats = CommandStats::read(connection)?;
        Ok(Cost {
            redis_us: stats.usec as f64 / decisions as f64,
            client_us: client.as_secs_f64() * 1e6 / decisions as f64,
        })
    }

    fn next_call(&mut self) -> Cmd {
        if self.next + self.subject.batch > self.keys.len() {
            self.next = 0;
        }
        if self.next == 0 && self.situation.allowed {
            self.now_us += self.step_us;
        }
        let keys: Vec<&str> = self.keys[self.next..self.next + self.subject.batch].iter().map(String::as_str).collect();
        let call = self.call(&keys);
        self.next += self.subject.batch;
        call
    }

    fn call(&self, keys: &[&str]) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash);
        let (now_us, cost) = (Some(self.now_us), self.situation.cost);
        match self.subject.form {
            Form::Ours(algorithm) => scripts::ours_args(&mut command, keys, now_us, algorithm, self.quota, cost),
            Form::Plain => scripts::plain_args(&mut command, keys[0], now_us, self.quota, cost),
        }
        command
    }

    /// Whether each check of a call was allowed.
    fn verdicts(&self, reply: &Value) -> Vec<bool> {
        match self.subject.form {
            Form::Ours(_) => scripts::ours_verdicts(reply),
            Form::Plain => match reply {
                Value::Array(items) => vec![items.first() == Some(&Value::Int(1))],
                _ => vec![],
            },
        }
    }
}

impl Subject {
    /// Whether what it keeps grows with the requests in the window.
    pub fn is_log(&self) -> bool {
        matches!(self.form, Form::Ours(Algorithm::Log))
            || [scripts::SORTED_SET_LOG, scripts::SORTED_SET_STEP_LOG].contains(&self.code)
    }

    /// How many requests of a cost a sorted set with a member per unit takes before filling it is no fun.
    pub fn can_hold(&self, fill: u64, cost: u32) -> bool {
        self.code != scripts::SORTED_SET_LOG || fill * u64::from(cost) <= 1_000_000
    }
}
