//! The compared Lua scripts and their arguments.

use redis::{Cmd, Value};

/// The script of tollgate.
pub const TOLLGATE: &str = include!("../../../lua/script.rs");
/// The script of format `l4`, with its own format of calls and replies.
pub const TOLLGATE_L4: &str = include_str!("../../../tests/server/lua/format_l4.lua");

pub const SORTED_SET_STEP_LOG: &str = include_str!("../scripts/sorted_set_step_log.lua");
pub const SORTED_SET_LOG: &str = include_str!("../scripts/sorted_set_log.lua");
pub const TWO_KEY_COUNTER: &str = include_str!("../scripts/two_key_counter.lua");
pub const GCRA: &str = include_str!("../scripts/gcra.lua");
/// The minimal script: an upper bound on the speed of all others.
pub const CEILING: &str = "return 1";

/// The quota that all variants of a benchmark enforce.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    pub limit: u64,
    pub window_us: u64,
}

/// The algorithm numbers of tollgate's script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    Log = 1,
    Counter = 2,
    Fixed = 3,
    Bucket = 4,
}

/// Appends the arguments of tollgate's script (see `lua/FORMAT.md`): one check with one charge per key.
pub fn tollgate_args(
    command: &mut Cmd,
    keys: &[&str],
    now_us: Option<u64>,
    algorithm: Algorithm,
    quota: Quota,
    cost: u64,
) {
    // The algorithm's flag, and a run of equal checks: their number, one charge each, its policy and its cost.
    let checks = u16::try_from(keys.len()).expect("a batch has few checks").to_le_bytes();
    let flag = 1 << (algorithm as u8 - 1);
    let run = [&[flag, checks[0], checks[1], 1], &policy(algorithm, quota)[..], &(cost as f64).to_le_bytes()].concat();
    command.arg(keys.len()).arg(keys).arg(run);
    if let Some(now_us) = now_us {
        command.arg(now_us);
    }
}

/// Appends the arguments of format `l4`: a charge for each key.
pub fn tollgate_l4_args(command: &mut Cmd, keys: &[&str], now_us: Option<u64>, quota: Quota, cost: u64) {
    let charge = [&[1, 0, 0][..], &(cost as u32).to_le_bytes()].concat();
    command.arg(keys.len()).arg(keys);
    clock_arg(command, now_us);
    let doubles = [quota.window_us as f64, 1.0].map(f64::to_le_bytes).concat();
    let policy = [&[Algorithm::Log as u8, 0][..], &(quota.limit as u32).to_le_bytes(), &doubles].concat();
    command.arg(policy).arg(charge.repeat(keys.len()));
}

/// Packs a policy.
fn policy(algorithm: Algorithm, quota: Quota) -> Vec<u8> {
    let parameter = match algorithm {
        Algorithm::Log => 1.0,
        Algorithm::Counter | Algorithm::Fixed => 0.0,
        Algorithm::Bucket => quota.limit as f64,
    };
    let mut policy = vec![algorithm as u8, 0];
    policy.extend((quota.limit as f64).to_le_bytes());
    policy.extend((quota.window_us as f64).to_le_bytes());
    policy.extend(f64::to_le_bytes(parameter));
    policy
}

/// Parses the reply of tollgate's script to checks with a single charge: whether each was allowed.
pub fn tollgate_verdicts(reply: &Value, checks: usize) -> Vec<bool> {
    // The time, and then a number for each check, which is odd if the check fits and negative if it failed.
    let fits = |number: &[u8]| number.try_into().is_ok_and(|number| f64::from_le_bytes(number) % 2.0 == 1.0);
    match reply {
        Value::BulkString(packed) => packed.chunks(8).skip(1).take(checks).map(fits).collect(),
        _ => vec![],
    }
}

/// Parses the reply of format `l4`.
pub fn tollgate_l4_verdicts(reply: &Value) -> Vec<bool> {
    // The reply is the time and one report per charge. A report begins with 1 if the charge fits.
    const TIME: usize = 8;
    const REPORT: usize = 29;
    match reply {
        Value::BulkString(packed) => packed[TIME..].chunks(REPORT).map(|report| report[0] == 1).collect(),
        _ => vec![],
    }
}

/// Appends the arguments of a plain script: one key, cost, limit, window and time.
pub fn plain_args(command: &mut Cmd, key: &str, now_us: Option<u64>, quota: Quota, cost: u64) {
    command.arg(1).arg(key).arg(cost).arg(quota.limit).arg(quota.window_us);
    clock_arg(command, now_us);
}

/// Without `now_us`, the empty argument makes the script read the server's clock.
fn clock_arg(command: &mut Cmd, now_us: Option<u64>) {
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
}
