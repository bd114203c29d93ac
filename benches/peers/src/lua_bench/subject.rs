//! The measured scripts, and how each is called.

use redis::{Cmd, Connection, Script, Value};

use crate::scripts::{self, Algorithm, Quota};
use crate::{Result, server::Server};

/// A script to measure, and how it is called.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub name: &'static str,
    /// The name in ratios.
    pub label: &'static str,
    pub code: &'static str,
    pub format: CallFormat,
    /// Checks per call, each for another key.
    pub batch: usize,
}

/// The format of a script's arguments and reply.
#[derive(Clone, Copy, Debug)]
pub enum CallFormat {
    /// tollgate's packed format: many keys, one packed reply.
    Tollgate(Algorithm),
    /// The packed format `l4`.
    TollgateL4,
    /// One key, and an array whose first item is the verdict.
    Plain,
}

/// Checks per call of the batched subjects.
pub const BATCH: usize = 64;

const fn tollgate(name: &'static str, label: &'static str, algorithm: Algorithm, batch: usize) -> Subject {
    Subject { name, label, code: scripts::TOLLGATE, format: CallFormat::Tollgate(algorithm), batch }
}

const fn plain(name: &'static str, label: &'static str, code: &'static str) -> Subject {
    Subject { name, label, code, format: CallFormat::Plain, batch: 1 }
}

pub const LOG: Subject = tollgate("tollgate log", "single", Algorithm::Log, 1);
pub const LOG_BATCHED: Subject = tollgate("tollgate log, 64 per call", "batched", Algorithm::Log, BATCH);
const L4: Subject = Subject {
    name: "log in format l4",
    label: "l4",
    code: scripts::TOLLGATE_L4,
    format: CallFormat::TollgateL4,
    batch: 1,
};
const L4_BATCHED: Subject = Subject { name: "log in format l4, 64 per call", label: "l4_batched", batch: BATCH, ..L4 };
const STEP_LOG: Subject =
    plain("sorted set, one member per request", "sorted_set_per_request", scripts::SORTED_SET_STEP_LOG);
pub const SORTED_SET: Subject = plain("sorted set, one member per unit", "sorted_set", scripts::SORTED_SET_LOG);

pub const COUNTER: Subject = tollgate("tollgate counter", "counter", Algorithm::Counter, 1);
pub const COUNTER_BATCHED: Subject =
    tollgate("tollgate counter, 64 per call", "counter_batched", Algorithm::Counter, BATCH);
const FIXED: Subject = tollgate("tollgate fixed window", "fixed", Algorithm::Fixed, 1);
const FIXED_BATCHED: Subject = tollgate("tollgate fixed window, 64 per call", "fixed_batched", Algorithm::Fixed, BATCH);
pub const BUCKET: Subject = tollgate("tollgate token bucket", "bucket", Algorithm::Bucket, 1);
pub const BUCKET_BATCHED: Subject =
    tollgate("tollgate token bucket, 64 per call", "bucket_batched", Algorithm::Bucket, BATCH);
pub const TWO_KEYS: Subject = plain("counter in two keys", "two_keys", scripts::TWO_KEY_COUNTER);
pub const GCRA: Subject = plain("GCRA in one string", "gcra", scripts::GCRA);

pub const LOGS: [Subject; 6] = [LOG, LOG_BATCHED, L4, L4_BATCHED, STEP_LOG, SORTED_SET];

/// Scripts whose state has a constant size: one fill is enough to measure them.
pub const CONSTANT_STATE: [Subject; 8] =
    [COUNTER, COUNTER_BATCHED, FIXED, FIXED_BATCHED, BUCKET, BUCKET_BATCHED, TWO_KEYS, GCRA];

impl Subject {
    /// The plain script that the subject is compared with: one that counts in the same way.
    pub fn yardstick(&self) -> Self {
        match self.format {
            CallFormat::Tollgate(Algorithm::Log) | CallFormat::TollgateL4 => SORTED_SET,
            CallFormat::Tollgate(Algorithm::Counter | Algorithm::Fixed) => TWO_KEYS,
            CallFormat::Tollgate(Algorithm::Bucket) => GCRA,
            CallFormat::Plain if self.is_log() => SORTED_SET,
            CallFormat::Plain => *self,
        }
    }

    /// Whether the script's state grows with the requests in the window.
    pub fn is_log(&self) -> bool {
        matches!(self.format, CallFormat::Tollgate(Algorithm::Log) | CallFormat::TollgateL4)
            || [scripts::SORTED_SET_LOG, scripts::SORTED_SET_STEP_LOG].contains(&self.code)
    }

    /// Loads the script; returns its hash.
    pub fn load(&self, connection: &mut Connection) -> Result<String> {
        redis::cmd("SCRIPT").arg("LOAD").arg(self.code).exec(connection)?;
        Ok(Script::new(self.code).get_hash().to_owned())
    }

    /// A call of the script: one check for each key. Without `now_us`, the script reads the server's clock.
    pub fn call(&self, hash: &str, keys: &[&str], now_us: Option<u64>, quota: Quota, cost: u64) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(hash);
        match self.format {
            CallFormat::Tollgate(algorithm) => {
                scripts::tollgate_args(&mut command, keys, now_us, algorithm, quota, cost);
            }
            CallFormat::TollgateL4 => scripts::tollgate_l4_args(&mut command, keys, now_us, quota, cost),
            CallFormat::Plain => scripts::plain_args(&mut command, keys[0], now_us, quota, cost),
        }
        command
    }

    /// Whether each of the checks of a call was allowed.
    pub fn verdicts(&self, reply: &Value, checks: usize) -> Vec<bool> {
        match self.format {
            CallFormat::Tollgate(_) => scripts::tollgate_verdicts(reply, checks),
            CallFormat::TollgateL4 => scripts::tollgate_l4_verdicts(reply),
            CallFormat::Plain => match reply {
                Value::Array(items) => vec![items.first() == Some(&Value::Int(1))],
                _ => vec![],
            },
        }
    }
}

/// A subject with a Redis of its own, so that the keys of one script do not slow another.
pub struct Hosted {
    pub subject: Subject,
    pub connection: Connection,
    /// Runs as long as this value exists.
    pub server: Server,
}

impl Hosted {
    pub fn start(subject: Subject) -> Result<Self> {
        let server = Server::redis(None)?;
        Ok(Self { subject, connection: server.endpoint().blocking()?, server })
    }
}
