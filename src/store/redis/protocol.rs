//! The script's wire format: keys and packed numbers out, integers back. See `lua/check.lua`.

use std::{mem, sync::Arc};

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::{key, progress::Progress};
use crate::{
    check::{Charge, Check},
    error::{Error, ErrorKind},
    policy::{Algorithm, Policy},
    store::ban::{self, Count},
    verdict::{Outcome, Source, Verdict},
};

/// A check, and what is to be done with it.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) check: Check,
    pub(super) step: Step,
    /// Of the check that this is a step of.
    pub(super) progress: Arc<Progress>,
}

/// What is to be done with a check.
///
/// All of it on a single server, where a check is paid whole or not at all; on a cluster that takes several steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Give back what was paid at that time. Nothing is judged.
    #[cfg(feature = "cluster")]
    GiveBack { paid_us: u64 },
    /// Judge alone: nothing is paid or counted.
    #[cfg(feature = "cluster")]
    Look,
    /// Judge, and pay if all of it fits.
    Pay,
    /// It is refused elsewhere: judge, and count what is to be counted then.
    #[cfg(feature = "cluster")]
    Refuse,
}

impl Step {
    /// Whether it takes units.
    pub(super) fn charges(self) -> bool {
        matches!(self, Self::Pay)
    }
}

/// Adds the keys and arguments of one call to EVALSHA, which has its script already.
pub(super) fn write<'a>(
    command: &mut Cmd,
    prefix: &str,
    now_us: Option<u64>,
    requests: impl Iterator<Item = &'a Request> + Clone,
) {
    let count = requests.clone().map(|request| counts(&request.check)).sum::<usize>();
    let mut policies = Policies::default();
    let mut charges = Vec::with_capacity(CHARGE_SIZE * count);
    command.arg(count);
    let mut encoded = Vec::new();
    for Request { check, step, .. } in requests {
        let mut begins = counts(check);
        for charge in check.charges() {
            for Count { policy, cost } in ban::counts(charge) {
                encoded.clear();
                key::encode(&mut encoded, prefix, &charge.key, policy);
                command.arg(&encoded);
                let begins = u8::try_from(mem::take(&mut begins));
                charges.push(begins.expect("a check has at most Check::MAX_CHARGES charges, of two counts each"));
                charges.extend_from_slice(&policies.number(policy, *step).to_le_bytes());
                charges.extend_from_slice(&cost.to_le_bytes());
            }
        }
    }
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
    command.arg(policies.packed).arg(charges);
    #[cfg(feature = "cluster")]
    if policies.seen.iter().any(|(_, step)| matches!(step, Step::GiveBack { .. })) {
        let paid =
            |(_, step): &(&Policy, Step)| double(if let Step::GiveBack { paid_us } = *step { paid_us } else { 0 });
        command.arg(policies.seen.iter().flat_map(paid).collect::<Vec<u8>>());
    }
}

const CHARGE_SIZE: usize = 7;

/// How many charges a check is to the script, for which a count of denials is one of its own.
fn counts(check: &Check) -> usize {
    check.charges().iter().map(|charge| 1 + usize::from(charge.policy.ban().is_some())).sum()
}

/// The policies of a call, each sent once for each step.
#[derive(Default)]
struct Policies<'a> {
    seen: SmallVec<[(&'a Policy, Step); 4]>,
    packed: Vec<u8>,
}

impl<'a> Policies<'a> {
    fn number(&mut self, policy: &'a Policy, step: Step) -> u16 {
        let number = self.seen.iter().position(|seen| *seen == (policy, step)).unwrap_or_else(|| {
            self.seen.push((policy, step));
            self.pack(policy, step);
            self.seen.len() - 1
        });
        u16::try_from(number).expect("a call has no more charges than fit a batch, far below 2^16")
    }

    fn pack(&mut self, policy: &Policy, step: Step) {
        let (algorithm, parameter) = match policy.algorithm() {
            Algorithm::SlidingWindowLog => (1, policy.resolution_us()),
            Algorithm::SlidingWindowCounter => (2, 0),
            Algorithm::FixedWindow => (3, 0),
            Algorithm::TokenBucket => (4, policy.capacity().into()),
        };
        let counts = if policy.is_ban() { 8 } else { u8::from(policy.count_rejected()) };
        let step = match step {
            #[cfg(feature = "cluster")]
            Step::GiveBack { .. } => 4,
            #[cfg(feature = "cluster")]
            Step::Look => 2,
            Step::Pay => counts,
            #[cfg(feature = "cluster")]
            Step::Refuse if policy.is_ban() => counts,
            #[cfg(feature = "cluster")]
            Step::Refuse => 2 | counts,
        };
        self.packed.extend_from_slice(&[algorithm, step]);
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

/// Reads the reply. `convert` converts the error of a check, and tells whether the connection is to be replaced.
pub(super) fn read<'a>(
    reply: &Value,
    requests: impl Iterator<Item = &'a Request>,
    convert: impl Fn(&str) -> (Error, bool),
) -> Result<Reply, Error> {
    let Value::BulkString(packed) = reply else { return Err(unexpected()) };
    let mut packed = Packed(packed);
    let time_us = packed.microseconds()?.ok_or_else(unexpected)?;
    let mut reply = Reply { verdicts: Vec::with_capacity(requests.size_hint().0), broken: false };
    for Request { check, .. } in requests {
        let verdict = match packed.failure()? {
            Some(message) => {
                let (error, broken) = convert(&String::from_utf8_lossy(message));
                reply.broken |= broken;
                Err(error)
            }
            None => {
                let outcomes: SmallVec<_> =
                    check.charges().iter().map(|charge| packed.charge(charge)).collect::<Result<_, _>>()?;
                let allowed = outcomes.iter().all(|outcome: &Outcome| outcome.fits);
                Ok(Verdict { allowed, source: Source::Store, time_us, outcomes })
            }
        };
        reply.verdicts.push(verdict);
    }
    if packed.0.is_empty() { Ok(reply) } else { Err(unexpected()) }
}

/// What is still to be read of a reply.
struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    /// The error of a check that failed.
    fn failure(&mut self) -> Result<Option<&'a [u8]>, Error> {
        if self.0.first() != Some(&2) {
            return Ok(None);
        }
        let [_] = self.take()?;
        let length = u32::from_le_bytes(self.take()?);
        let length = usize::try_from(length).map_err(|_| unexpected())?;
        let (message, rest) = self.0.split_at_checked(length).ok_or_else(unexpected)?;
        self.0 = rest;
        Ok(Some(message))
    }

    /// What became of a charge, and of the count of its denials.
    fn charge(&mut self, charge: &Charge) -> Result<Outcome, Error> {
        let own = self.outcome()?;
        match charge.policy.ban() {
            Some(_) => Ok(ban::merge(own, self.outcome()?)),
            None => Ok(own),
        }
    }

    fn outcome(&mut self) -> Result<Outcome, Error> {
        let [fits] = self.take()?;
        Ok(Outcome {
            fits: fits == 1,
            available: u32::from_le_bytes(self.take()?),
            retry_after_us: self.microseconds()?,
            next_us: self.microseconds()?.ok_or_else(unexpected)?,
            reset_us: self.microseconds()?.ok_or_else(unexpected)?,
            ban_us: 0,
        })
    }

    /// A whole number in a double; a negative one stands for none.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn microseconds(&mut self) -> Result<Option<u64>, Error> {
        let number = f64::from_le_bytes(self.take()?);
        Ok((number >= 0.0).then_some(number as u64))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(unexpected)?;
        self.0 = rest;
        Ok(*taken)
    }
}

/// The script ran, so it may have charged.
fn unexpected() -> Error {
    Error::new(ErrorKind::Misconfigured, "the script's reply is not understood").charge_unknown()
}
