//! The script's wire format: keys and packed numbers out, integers back. See `lua/check.lua`.

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::{error, key};
use crate::{
    check::{Charge, Check},
    decision::Source,
    error::{Error, ErrorKind},
    policy::{Algorithm, Policy},
    store::{Outcome, Verdict},
};

/// Adds the keys and arguments of one call to EVALSHA, which has its script already.
pub(super) fn write<'a>(
    command: &mut Cmd,
    prefix: &str,
    now_us: Option<u64>,
    checks: impl Iterator<Item = &'a Check> + Clone,
) {
    let mut policies = Policies::default();
    let mut charges = Vec::new();
    command.arg(checks.clone().map(|check| check.charges().len()).sum::<usize>());
    let mut encoded = Vec::new();
    for check in checks {
        for (index, Charge { key, policy, cost }) in check.charges().iter().enumerate() {
            encoded.clear();
            key::encode(&mut encoded, prefix, key, policy);
            command.arg(&encoded);
            charges.push(u8::from(index == 0));
            charges.extend_from_slice(&policies.number(policy).to_le_bytes());
            charges.extend_from_slice(&cost.to_le_bytes());
        }
    }
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
    command.arg(policies.packed).arg(charges);
}

/// The policies of a call, each sent once.
#[derive(Default)]
struct Policies<'a> {
    seen: SmallVec<[&'a Policy; 4]>,
    packed: Vec<u8>,
}

impl<'a> Policies<'a> {
    fn number(&mut self, policy: &'a Policy) -> u16 {
        let number = self.seen.iter().position(|seen| *seen == policy).unwrap_or_else(|| {
            self.seen.push(policy);
            self.pack(policy);
            self.seen.len() - 1
        });
        u16::try_from(number).expect("a call has no more charges than fit a batch, far below 2^16")
    }

    fn pack(&mut self, policy: &Policy) {
        let (algorithm, parameter) = match policy.kind() {
            Algorithm::SlidingWindowLog => (1, policy.resolution_us()),
            Algorithm::SlidingWindowCounter => (2, 0),
            Algorithm::FixedWindow => (3, 0),
            Algorithm::TokenBucket => (4, policy.capacity().into()),
        };
        self.packed.extend_from_slice(&[algorithm, u8::from(policy.counts_rejected())]);
        self.packed.extend_from_slice(&policy.limit().to_le_bytes());
        self.packed.extend_from_slice(&double(policy.window_us()));
        self.packed.extend_from_slice(&double(parameter));
    }
}

/// Windows are validated to be below 2^53 microseconds, so nothing is lost.
#[expect(clippy::cast_precision_loss)]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// What one call gave.
pub(super) struct Reply {
    /// A verdict or an error for each check.
    pub(super) verdicts: Vec<Result<Verdict, Error>>,
    /// Whether an error says that the connection is to be replaced.
    pub(super) broken: bool,
}

/// Reads the reply.
pub(super) fn read<'a>(reply: Value, checks: impl Iterator<Item = &'a Check>) -> Result<Reply, Error> {
    let Value::Array(items) = reply else { return Err(unexpected()) };
    let mut items = items.into_iter();
    let time_us = integer(items.next())?;
    let mut reply = Reply { verdicts: Vec::with_capacity(checks.size_hint().0), broken: false };
    for check in checks {
        let verdict = match items.next() {
            Some(Value::BulkString(message)) => {
                let (error, broken) = error::convert_reported(&String::from_utf8_lossy(&message));
                reply.broken |= broken;
                Err(error)
            }
            allowed => Ok(read_verdict(&mut items, integer(allowed)? == 1, time_us, check)?),
        };
        reply.verdicts.push(verdict);
    }
    Ok(reply)
}

fn read_verdict(
    items: &mut impl Iterator<Item = Value>,
    allowed: bool,
    time_us: u64,
    check: &Check,
) -> Result<Verdict, Error> {
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
    Ok(Verdict { allowed, source: Source::Store, time_us, outcomes })
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
