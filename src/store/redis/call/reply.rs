//! The reply of the script. `lua/check.lua` describes its format.

use redis::Value;
use smallvec::SmallVec;

use super::{
    outgoing::Request,
    protocol::{counts, counts_of},
};
use crate::{
    algorithm::Reported,
    error::{Error, ErrorKind},
    policy::{Algorithm, Policy},
    store::ban::{self, PolicyCost},
    verdict::{Outcome, Source, Verdict},
};

/// The results of one call.
pub(super) struct Reply {
    /// A verdict or an error for each check.
    pub(super) verdicts: Vec<Result<Verdict, Error>>,
    /// Whether an error demands that the connection is replaced.
    pub(super) breaks_connection: bool,
}

/// Reads the reply. `convert` converts the error of a check and returns whether the connection has to be replaced.
pub(super) fn read<'a>(
    reply: &Value,
    requests: impl Iterator<Item = &'a Request> + Clone,
    convert: impl Fn(&str) -> (Error, bool),
) -> Result<Reply, Error> {
    let Value::BulkString(packed) = reply else { return Err(unexpected()) };
    let mut packed = Packed::new(packed, requests.clone().map(counts_of).sum())?;
    let mut reply = Reply { verdicts: Vec::with_capacity(requests.size_hint().0), breaks_connection: false };
    for request in requests {
        let verdict = match packed.failure(counts_of(request))? {
            Some(message) => {
                let (error, breaks_connection) = convert(&String::from_utf8_lossy(message));
                reply.breaks_connection |= breaks_connection;
                Err(error)
            }
            None => {
                let outcomes: SmallVec<_> = request
                    .charges()
                    .map(|(charge, _)| {
                        // The outcome of the charge, merged with that of the count of its denials.
                        let mut outcomes = counts(charge, request.step).map(|count| packed.outcome(count));
                        let own = outcomes.next().ok_or_else(unexpected)??;
                        outcomes.next().map_or(Ok(own), |denials| Ok(ban::merge(own, denials?)))
                    })
                    .collect::<Result<_, Error>>()?;
                let allowed = outcomes.iter().all(|outcome: &Outcome| outcome.fits);
                Ok(Verdict { allowed, source: Source::Store, time_us: packed.time_us, outcomes })
            }
        };
        reply.verdicts.push(verdict);
    }
    if packed.more.0.is_empty() && packed.errors.is_empty() { Ok(reply) } else { Err(unexpected()) }
}

/// The unread rest of a reply.
struct Packed<'a> {
    time_us: u64,
    /// A number and a time for each charge.
    numbers: Doubles<'a>,
    times: Doubles<'a>,
    /// More numbers of some charges.
    more: Doubles<'a>,
    /// The texts of errors.
    errors: &'a [u8],
}

impl<'a> Packed<'a> {
    fn new(packed: &'a [u8], charges: usize) -> Result<Self, Error> {
        let mut rest = Doubles(packed);
        let time_us = rest.natural()?;
        let (numbers, times) = (rest.split(charges)?, rest.split(charges)?);
        // The errors are last, each as long as the time of its check.
        let lengths = Doubles(numbers.0).zip(Doubles(times.0)).filter(|&(number, _)| number < 0.0);
        let lengths = lengths.map(|(_, length)| natural(length)).sum::<Result<u64, _>>()?;
        let lengths = usize::try_from(lengths).map_err(|_| unexpected())?;
        let more = rest.0.len().checked_sub(lengths).ok_or_else(unexpected)?;
        let (more, errors) = rest.0.split_at(more);
        Ok(Self { time_us, numbers, times, more: Doubles(more), errors })
    }

    /// The error of a check with this number of charges, if the check has failed.
    fn failure(&mut self, charges: usize) -> Result<Option<&'a [u8]>, Error> {
        if Doubles(self.numbers.0).next().is_none_or(|number| number >= 0.0) {
            return Ok(None);
        }
        self.numbers.split(charges)?;
        let length = usize::try_from(self.times.split(charges)?.natural()?).map_err(|_| unexpected())?;
        let (message, rest) = self.errors.split_at_checked(length).ok_or_else(unexpected)?;
        self.errors = rest;
        Ok(Some(message))
    }

    /// The outcome of one count.
    fn outcome(&mut self, PolicyCost { policy, cost }: PolicyCost<'_>) -> Result<Outcome, Error> {
        let (number, time) = (self.numbers.natural()?, self.times.natural()?);
        let (fits, has_more, number) = (number & 1 == 1, number & 2 == 2, number >> 2);
        let reported = match policy.algorithm() {
            Algorithm::SlidingWindowLog => return self.log(policy, fits, has_more, number, time),
            Algorithm::SlidingWindowCounter => {
                let previous = if has_more { self.more.natural()? } else { 0 };
                Reported::SlidingWindowCounter { previous, current: number, left: time }
            }
            Algorithm::FixedWindow => Reported::FixedWindow { count: number, left: time },
            Algorithm::TokenBucket => Reported::TokenBucket { ahead: time, fraction: number },
        };
        Ok(reported.outcome(policy, cost, fits))
    }

    /// The outcome of a log, which alone can search its records for the waits.
    fn log(
        &mut self,
        policy: &Policy,
        fits: bool,
        has_more: bool,
        number: u64,
        next_us: u64,
    ) -> Result<Outcome, Error> {
        let retry_after_us = match (has_more, fits) {
            (true, _) => match self.more.next().ok_or_else(unexpected)? {
                none if none < 0.0 => None,
                wait => Some(natural(wait)?),
            },
            (false, true) => None,
            (false, false) => Some(next_us),
        };
        let reset_us = if fits && !has_more {
            // The charge is the newest record. Stamps are rounded up to the resolution.
            self.time_us.next_multiple_of(policy.resolution_us()) - self.time_us + policy.window_us()
        } else {
            self.more.natural()?
        };
        let available = u32::try_from(number).map_err(|_| unexpected())?;
        Ok(Outcome { fits, available, retry_after_us, next_us, reset_us, ban_us: 0 })
    }
}

/// Packed doubles.
struct Doubles<'a>(&'a [u8]);

impl<'a> Doubles<'a> {
    /// Takes this number of doubles.
    fn split(&mut self, count: usize) -> Result<Self, Error> {
        let (taken, rest) = self.0.split_at_checked(count * size_of::<f64>()).ok_or_else(unexpected)?;
        self.0 = rest;
        Ok(Self(taken))
    }

    fn natural(&mut self) -> Result<u64, Error> {
        natural(self.next().ok_or_else(unexpected)?)
    }
}

impl Iterator for Doubles<'_> {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f64::from_le_bytes(*taken))
    }
}

/// A whole number in a double. Sums of a few such numbers do not overflow.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn natural(number: f64) -> Result<u64, Error> {
    if (0.0..1e18).contains(&number) { Ok(number as u64) } else { Err(unexpected()) }
}

/// The error of a reply in another format. The script ran, so it may have charged.
fn unexpected() -> Error {
    Error::new(ErrorKind::Misconfigured, "the reply of the script has an unknown format").charge_unknown()
}
