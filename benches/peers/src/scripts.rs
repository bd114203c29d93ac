//! The scripts that are compared, and how each is called.

use redis::{Cmd, Value};

/// Our script, as `src/store/redis/call/script.rs` assembles it, around a log.
macro_rules! ours {
    ($log:literal) => {
        concat!(
            include_str!("../../../lua/prelude.lua"),
            include_str!($log),
            include_str!("../../../lua/sliding_window_counter.lua"),
            include_str!("../../../lua/fixed_window.lua"),
            include_str!("../../../lua/token_bucket.lua"),
            include_str!("../../../lua/check.lua"),
        )
    };
}

pub const OURS: &str = ours!("../../../lua/sliding_window_log.lua");
/// What the log was before it was one string.
pub const OURS_IN_CHUNKS: &str = ours!("../scripts/chunked_hash_log.lua");

pub const SORTED_SET_STEP_LOG: &str = include_str!("../scripts/sorted_set_step_log.lua");
pub const SORTED_SET_LOG: &str = include_str!("../scripts/sorted_set_log.lua");
pub const TWO_KEY_COUNTER: &str = include_str!("../scripts/two_key_counter.lua");
pub const GCRA: &str = include_str!("../scripts/gcra.lua");
/// The least that a script can do.
pub const CEILING: &str = "return 1";

/// A quota, whatever counts it.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    pub limit: u32,
    pub window_us: u64,
}

/// The numbers by which our script knows its algorithms.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    Log = 1,
    Counter = 2,
    Fixed = 3,
    Bucket = 4,
}

/// The arguments of our script (see `lua/check.lua`): one check of one charge for each key.
pub fn ours_args(command: &mut Cmd, keys: &[&str], now_us: Option<u64>, algorithm: Algorithm, quota: Quota, cost: u32) {
    let parameter = match algorithm {
        Algorithm::Log => 1.0,
        Algorithm::Counter | Algorithm::Fixed => 0.0,
        Algorithm::Bucket => f64::from(quota.limit),
    };
    let mut policy = vec![algorithm as u8, 0];
    policy.extend(quota.limit.to_le_bytes());
    policy.extend((quota.window_us as f64).to_le_bytes());
    policy.extend(f64::to_le_bytes(parameter));
    let mut charges = Vec::with_capacity(keys.len() * 7);
    for _ in keys {
        charges.extend([1, 0, 0]);
        charges.extend(cost.to_le_bytes());
    }
    command.arg(keys.len()).arg(keys);
    clock_arg(command, now_us);
    command.arg(policy).arg(charges);
}

/// What our script replied: whether each check of one charge was allowed.
pub fn ours_verdicts(reply: &Value) -> Vec<bool> {
    const TIME: usize = 8;
    const REPORT: usize = 29;
    match reply {
        Value::BulkString(packed) => packed[TIME..].chunks(REPORT).map(|report| report[0] == 1).collect(),
        _ => vec![],
    }
}

/// The arguments that all plain scripts take: one key.
pub fn plain_args(command: &mut Cmd, key: &str, now_us: Option<u64>, quota: Quota, cost: u32) {
    command.arg(1).arg(key).arg(cost).arg(quota.limit).arg(quota.window_us);
    clock_arg(command, now_us);
}

fn clock_arg(command: &mut Cmd, now_us: Option<u64>) {
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
}
