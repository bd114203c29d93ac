//! The script's wire format: arguments out, integers back. See `lua/check.lua`.

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::{error, key};
use crate::{
    check::{Charge, Check},
    error::{Error, ErrorKind},
    policy::Algorithm,
    store::{Outcome, Verdict},
};

/// Adds the keys and arguments of one call to EVALSHA, which has its script already.
pub(super) fn write(command: &mut Cmd, prefix: &str, now_us: Option<u64>, checks: &[&Check]) {
    let charges = || checks.iter().flat_map(|check| check.charges());
    command.arg(charges().count());
    for Charge { key, policy, .. } in charges() {
        command.arg(key::encode(prefix, key, policy));
    }
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
    for check in checks {
        command.arg(check.charges().len());
        for Charge { policy, cost, .. } in check.charges() {
            let (algorithm, parameter) = match policy.kind() {
                Algorithm::SlidingWindowLog => ("1", policy.resolution_us()),
                Algorithm::SlidingWindowCounter => ("2", 0),
                Algorithm::FixedWindow => ("3", 0),
                Algorithm::TokenBucket => ("4", policy.capacity().into()),
            };
            command.arg(algorithm).arg(policy.limit()).arg(policy.window_us()).arg(parameter);
            command.arg(u8::from(policy.counts_rejected())).arg(*cost);
        }
    }
}

/// Reads the reply: a verdict or an error for each check.
pub(super) fn read(reply: Value, checks: &[&Check]) -> Result<Vec<Result<Verdict, Error>>, Error> {
    let Value::Array(items) = reply else { return Err(unexpected()) };
    let mut items = items.into_iter();
    let time_us = integer(items.next())?;
    checks.iter().map(|check| read_one(&mut items, time_us, check)).collect()
}

fn read_one(
    items: &mut impl Iterator<Item = Value>,
    time_us: u64,
    check: &Check,
) -> Result<Result<Verdict, Error>, Error> {
    let allowed = match items.next() {
        Some(Value::BulkString(message)) => {
            return Ok(Err(error::convert_reported(&String::from_utf8_lossy(&message))));
        }
        other => integer(other)? == 1,
    };
    let mut outcomes = SmallVec::new();
    for _ in check.charges() {
        outcomes.push(Outcome {
            fits: integer(items.next())? == 1,
            available: u32::try_from(integer(items.next())?).map_err(|_| unexpected())?,
            // -1 stands for none.
            retry_after_us: signed(items.next())?.try_into().ok(),
            next_us: integer(items.next())?,
            reset_us: integer(items.next())?,
        });
    }
    Ok(Ok(Verdict { allowed, time_us, outcomes }))
}

fn signed(item: Option<Value>) -> Result<i64, Error> {
    match item {
        Some(Value::Int(number)) => Ok(number),
        _ => Err(unexpected()),
    }
}

fn integer(item: Option<Value>) -> Result<u64, Error> {
    signed(item)?.try_into().map_err(|_| unexpected())
}

/// The script ran, so it may have charged.
fn unexpected() -> Error {
    Error::new(ErrorKind::Misconfigured, "the script's reply is not understood").charge_unknown()
}
