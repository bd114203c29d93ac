//! The wire format of the script: a call has keys and packed numbers, a reply has packed numbers. `lua/check.lua`
//! describes the format.

use std::mem;

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::{
    outgoing::{Request, Step},
    redis_key,
};
use crate::{
    check::Charge,
    error::{Error, ErrorKind},
    policy::{Algorithm, Policy},
    store::ban::{self, PolicyCost},
    verdict::{Outcome, Source, Verdict},
};

/// The numbers of the algorithms. `lua/check.lua` has the same numbers.
mod algorithm {
    pub(super) const SLIDING_WINDOW_LOG: u8 = 1;
    pub(super) const SLIDING_WINDOW_COUNTER: u8 = 2;
    pub(super) const FIXED_WINDOW: u8 = 3;
    pub(super) const TOKEN_BUCKET: u8 = 4;
}

/// What the script does with a charge. `lua/check.lua` has the same numbers.
mod usage {
    /// Commits the charge if the check fits.
    pub(super) const COMMIT: u8 = 0;
    /// Flag: commits the charge also if the check is denied.
    pub(super) const COUNT_REJECTED: u8 = 1;
    /// Evaluates the charge and commits nothing, except as [`COUNT_REJECTED`] demands.
    #[cfg(feature = "cluster")]
    pub(super) const EVALUATE: u8 = 2;
    /// Refunds an earlier commit.
    #[cfg(feature = "cluster")]
    pub(super) const REFUND: u8 = 4;
    /// Counts the denials of the previous charge, which may lead to a ban.
    pub(super) const BAN: u8 = 8;
}

/// The first byte of the reply to a charge.
mod reply {
    /// The charge fits. 0 stands for a charge that does not fit.
    pub(super) const FITS: u8 = 1;
    /// The check has failed; the length and the text of the error follow.
    pub(super) const FAILED: u8 = 2;
}

/// Length of a packed charge: the number of charges in its check (u8), its policy (u16) and its cost (u32).
const CHARGE_SIZE: usize = 7;

/// Adds the keys and arguments of one call to EVALSHA, which has its script already.
pub(crate) fn write<'a>(
    command: &mut Cmd,
    prefix: &str,
    now_us: Option<u64>,
    requests: impl Iterator<Item = &'a Request> + Clone,
) {
    let total = requests.clone().map(counts_of).sum::<usize>();
    let mut policies = Policies::default();
    let mut charges = Vec::with_capacity(CHARGE_SIZE * total);
    command.arg(total);
    let mut encoded = Vec::new();
    for request in requests {
        let mut size = counts_of(request);
        for (charge, key) in request.charges() {
            for PolicyCost { policy, cost } in counts(charge, request.step) {
                encoded.clear();
                redis_key::encode(&mut encoded, prefix, key, policy);
                command.arg(&encoded);
                // The first charge of a check has the check's size, the others 0.
                let size = u8::try_from(mem::take(&mut size));
                charges.push(size.expect("a check has at most Check::MAX_CHARGES charges, of two counts each"));
                charges.extend_from_slice(&policies.number(policy, request.step).to_le_bytes());
                charges.extend_from_slice(&cost.to_le_bytes());
            }
        }
    }
    match now_us {
        Some(now_us) => command.arg(now_us),
        None => command.arg(""),
    };
    command.arg(&policies.packed).arg(charges);
    #[cfg(feature = "cluster")]
    if let Some(times) = policies.commit_times() {
        command.arg(times);
    }
}

/// The counts that a step with a charge concerns: the charge's own count, and the count of its denials if they lead to
/// a ban. A refund concerns no count of denials, because the charge was admitted.
fn counts(charge: &Charge, step: Step) -> impl Iterator<Item = PolicyCost<'_>> {
    ban::policy_costs(charge).take(if has_ban_count(charge, step) { 2 } else { 1 })
}

/// Whether a step with a charge also concerns the count of the charge's denials.
#[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "only a cluster has refunds"))]
fn has_ban_count(charge: &Charge, step: Step) -> bool {
    #[cfg(feature = "cluster")]
    if matches!(step, Step::Refund { .. }) {
        return false;
    }
    charge.policy.ban().is_some()
}

/// The number of counts that a request concerns. The script calls each of them a charge.
fn counts_of(request: &Request) -> usize {
    request.charges().map(|(charge, _)| 1 + usize::from(has_ban_count(charge, request.step))).sum()
}

/// The policies of a call. A policy is sent once for each step that uses it.
#[derive(Default)]
struct Policies<'a> {
    seen: SmallVec<[(&'a Policy, Step); 4]>,
    packed: Vec<u8>,
}

impl<'a> Policies<'a> {
    /// The index of the policy in the call. Adds a policy that is not in the call yet.
    fn number(&mut self, policy: &'a Policy, step: Step) -> u16 {
        let number = self.seen.iter().position(|seen| *seen == (policy, step)).unwrap_or_else(|| {
            self.seen.push((policy, step));
            self.pack(policy, step);
            self.seen.len() - 1
        });
        u16::try_from(number).expect("a call has no more charges than fit a batch, far below 2^16")
    }

    /// For each policy the time of the commits that are refunded. `None` if the call has no refund.
    #[cfg(feature = "cluster")]
    fn commit_times(&self) -> Option<Vec<u8>> {
        let time = |(_, step): &(&Policy, Step)| match *step {
            Step::Refund { committed_us } => Some(committed_us),
            _ => None,
        };
        let has_refund = self.seen.iter().any(|seen| time(seen).is_some());
        has_refund.then(|| self.seen.iter().flat_map(|seen| double(time(seen).unwrap_or(0))).collect())
    }

    /// Appends a policy in the format of `lua/check.lua`.
    fn pack(&mut self, policy: &Policy, step: Step) {
        let (algorithm, parameter) = match policy.algorithm() {
            Algorithm::SlidingWindowLog => (algorithm::SLIDING_WINDOW_LOG, policy.resolution_us()),
            Algorithm::SlidingWindowCounter => (algorithm::SLIDING_WINDOW_COUNTER, 0),
            Algorithm::FixedWindow => (algorithm::FIXED_WINDOW, 0),
            Algorithm::TokenBucket => (algorithm::TOKEN_BUCKET, policy.capacity().into()),
        };
        self.packed.extend_from_slice(&[algorithm, usage_of(policy, step)]);
        self.packed.extend_from_slice(&policy.limit().to_le_bytes());
        self.packed.extend_from_slice(&double(policy.window_us()));
        self.packed.extend_from_slice(&double(parameter));
    }
}

/// The usage of a policy in one step.
fn usage_of(policy: &Policy, step: Step) -> u8 {
    let commit = match policy.count_rejected() {
        _ if policy.is_ban() => usage::BAN,
        true => usage::COMMIT | usage::COUNT_REJECTED,
        false => usage::COMMIT,
    };
    match step {
        Step::Commit => commit,
        #[cfg(feature = "cluster")]
        Step::Evaluate => usage::EVALUATE,
        #[cfg(feature = "cluster")]
        Step::Reject if policy.is_ban() => commit,
        #[cfg(feature = "cluster")]
        Step::Reject => usage::EVALUATE | commit,
        #[cfg(feature = "cluster")]
        Step::Refund { .. } => usage::REFUND,
    }
}

/// Packs a number as a double. Windows are validated to be below 2^53 microseconds, so no digit is lost.
#[expect(clippy::cast_precision_loss)]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// The results of one call.
pub(crate) struct Reply {
    /// A verdict or an error for each check.
    pub(crate) verdicts: Vec<Result<Verdict, Error>>,
    /// Whether an error demands that the connection is replaced.
    pub(crate) breaks_connection: bool,
}

/// Reads the reply. `convert` converts the error of a check and returns whether the connection has to be replaced.
pub(crate) fn read<'a>(
    reply: &Value,
    requests: impl Iterator<Item = &'a Request>,
    convert: impl Fn(&str) -> (Error, bool),
) -> Result<Reply, Error> {
    let Value::BulkString(packed) = reply else { return Err(unexpected()) };
    let mut packed = Packed(packed);
    let time_us = packed.microseconds()?.ok_or_else(unexpected)?;
    let mut reply = Reply { verdicts: Vec::with_capacity(requests.size_hint().0), breaks_connection: false };
    for request in requests {
        let verdict = match packed.failure()? {
            Some(message) => {
                let (error, breaks_connection) = convert(&String::from_utf8_lossy(message));
                reply.breaks_connection |= breaks_connection;
                Err(error)
            }
            None => {
                let outcomes = request.charges().map(|(charge, _)| packed.charge(charge, request.step));
                let outcomes: SmallVec<_> = outcomes.collect::<Result<_, _>>()?;
                let allowed = outcomes.iter().all(|outcome: &Outcome| outcome.fits);
                Ok(Verdict { allowed, source: Source::Store, time_us, outcomes })
            }
        };
        reply.verdicts.push(verdict);
    }
    if packed.0.is_empty() { Ok(reply) } else { Err(unexpected()) }
}

/// The unread rest of a reply.
struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    /// The error of a check, if it has failed.
    fn failure(&mut self) -> Result<Option<&'a [u8]>, Error> {
        if self.0.first() != Some(&reply::FAILED) {
            return Ok(None);
        }
        let [_] = self.take()?;
        let length = u32::from_le_bytes(self.take()?);
        let length = usize::try_from(length).map_err(|_| unexpected())?;
        let (message, rest) = self.0.split_at_checked(length).ok_or_else(unexpected)?;
        self.0 = rest;
        Ok(Some(message))
    }

    /// The outcome of a charge, merged with that of the count of its denials.
    fn charge(&mut self, charge: &Charge, step: Step) -> Result<Outcome, Error> {
        let own = self.outcome()?;
        if has_ban_count(charge, step) { Ok(ban::merge(own, self.outcome()?)) } else { Ok(own) }
    }

    /// The outcome of one count.
    fn outcome(&mut self) -> Result<Outcome, Error> {
        let [fits] = self.take()?;
        Ok(Outcome {
            fits: fits == reply::FITS,
            available: u32::from_le_bytes(self.take()?),
            retry_after_us: self.microseconds()?,
            next_us: self.microseconds()?.ok_or_else(unexpected)?,
            reset_us: self.microseconds()?.ok_or_else(unexpected)?,
            ban_us: 0,
        })
    }

    /// A whole number in a double. A negative number stands for `None`.
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

/// The error of a reply in another format. The script ran, so it may have charged.
fn unexpected() -> Error {
    Error::new(ErrorKind::Misconfigured, "the reply of the script has an unknown format").charge_unknown()
}
