//! The unread rest of a reply: its numbers and the texts of errors. `lua/FORMAT.md` describes the format.

use smallvec::SmallVec;

use crate::error::{Error, ErrorKind};
use crate::policy::Policy;

/// The unread rest of a reply.
pub(super) struct Packed<'a> {
    pub(super) time_us: u64,
    /// A number and a time for each charge.
    numbers: Doubles<'a>,
    times: Doubles<'a>,
    /// More numbers of some charges.
    more: Doubles<'a>,
    /// The texts of errors.
    errors: &'a [u8],
    /// Whether the check that is read has a number that is out of range.
    pub(super) is_out_of_range: bool,
    /// Whether a charge has a calendar window.
    pub(super) has_calendar: bool,
    /// Whether it is unknown where the next number of `more` is, because it is unknown how many an earlier charge has.
    has_lost_more: bool,
}

impl<'a> Packed<'a> {
    pub(super) fn new(packed: &'a [u8], charges: usize) -> Result<Self, Error> {
        let mut rest = Doubles(packed);
        let time_us = rest.next().and_then(natural).ok_or_else(unknown_format)?;
        let (numbers, times) = (rest.split(charges)?, rest.split(charges)?);
        // The errors are last, each as long as the time of its check.
        let mut lengths = Doubles(numbers.0).zip(Doubles(times.0)).filter(|&(number, _)| number < 0.0);
        // Subtracted one by one, because the sum of wrong lengths may overflow.
        let more = lengths.try_fold(rest.0.len(), |more, (_, length)| {
            more.checked_sub(length_of(length)?).ok_or_else(unknown_format)
        })?;
        let (more, errors) = rest.0.split_at(more);
        let more = Doubles(more);
        let (is_out_of_range, has_calendar, has_lost_more) = (false, false, false);
        Ok(Self { time_us, numbers, times, more, errors, is_out_of_range, has_calendar, has_lost_more })
    }

    /// The ends of the bans of a check with this number of charges, and the numbers of the check: the text in the place
    /// of its error.
    pub(super) fn banned(text: &'a [u8], charges: usize) -> Result<(SmallVec<[u64; 2]>, Self), Error> {
        let mut rest = Doubles(text);
        let ends = rest.split(charges)?.map(|end| natural(end).ok_or_else(unknown_format)).collect::<Result<_, _>>()?;
        Ok((ends, Self::new(rest.0, charges)?))
    }

    /// The number of a charge in the call, from 1 on, and the time of its key: the text of a stale window.
    pub(super) fn stale_window(text: &[u8]) -> Result<(u64, u64), Error> {
        let mut rest = Doubles(text);
        let mut number = || rest.next().and_then(natural).ok_or_else(unknown_format);
        Ok((number()?, number()?))
    }

    /// The error of a check with this number of charges, if the check has failed.
    pub(super) fn failure(&mut self, charges: usize) -> Result<Option<&'a [u8]>, Error> {
        if Doubles(self.numbers.0).next().is_none_or(|number| number.is_nan() || number >= 0.0) {
            return Ok(None);
        }
        self.numbers.split(charges)?;
        let length = self.times.split(charges)?.next().ok_or_else(unknown_format)?;
        let (message, rest) = self.errors.split_at_checked(length_of(length)?).ok_or_else(unknown_format)?;
        self.errors = rest;
        Ok(Some(message))
    }

    /// Checks that everything has been read.
    pub(super) fn end(&self) -> Result<(), Error> {
        let is_read = self.errors.is_empty() && (self.has_lost_more || self.more.0.is_empty());
        if is_read { Ok(()) } else { Err(unknown_format()) }
    }

    /// The number of a charge: whether it fits, whether it has more numbers, and the rest.
    pub(super) fn number(&mut self) -> Result<(bool, bool, u64), Error> {
        let number = self.numbers.next().ok_or_else(unknown_format)?;
        let number = natural(number).filter(|_| number.fract() == 0.0).unwrap_or_else(|| {
            (self.is_out_of_range, self.has_lost_more) = (true, true);
            0
        });
        Ok((number & 1 == 1, number & 2 == 2, number >> 2))
    }

    pub(super) fn time(&mut self) -> Result<u64, Error> {
        let time = self.times.next().ok_or_else(unknown_format)?;
        Ok(self.in_range(natural(time)))
    }

    /// One of the numbers in `more`.
    pub(super) fn more(&mut self) -> Result<u64, Error> {
        let number = self.next_more()?;
        Ok(self.in_range(natural(number)))
    }

    /// A wait in `more`. A negative number stands for `None`.
    pub(super) fn wait(&mut self) -> Result<Option<u64>, Error> {
        match self.next_more()? {
            none if none < 0.0 => Ok(None),
            wait => Ok(Some(self.in_range(natural(wait)))),
        }
    }

    fn next_more(&mut self) -> Result<f64, Error> {
        if self.has_lost_more { Ok(f64::NAN) } else { self.more.next().ok_or_else(unknown_format) }
    }

    /// Units, of which no count has more available than the largest limit.
    pub(super) fn units(&mut self, units: u64) -> u64 {
        self.in_range(Some(units).filter(|units| *units <= Policy::MAX_LIMIT))
    }

    /// Records whether a number is missing because it was out of range.
    fn in_range<N: Default>(&mut self, number: Option<N>) -> N {
        number.unwrap_or_else(|| {
            self.is_out_of_range = true;
            N::default()
        })
    }
}

/// Packed doubles.
struct Doubles<'a>(&'a [u8]);

impl<'a> Doubles<'a> {
    /// Takes this number of doubles.
    fn split(&mut self, count: usize) -> Result<Self, Error> {
        let (taken, rest) = self.0.split_at_checked(count * size_of::<f64>()).ok_or_else(unknown_format)?;
        self.0 = rest;
        Ok(Self(taken))
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
fn natural(number: f64) -> Option<u64> {
    (0.0..1e18).contains(&number).then_some(number as u64)
}

/// The length of the text of an error.
fn length_of(length: f64) -> Result<usize, Error> {
    natural(length).and_then(|length| usize::try_from(length).ok()).ok_or_else(unknown_format)
}

/// The error of a reply in another format. The script ran, so it may have charged.
pub(super) fn unknown_format() -> Error {
    Error::new(ErrorKind::StoreMisconfigured, "the reply of the script has an unknown format").charge_unknown()
}

/// The error of a check whose numbers no count can have. The script ran, so it may have charged.
pub(super) fn out_of_range() -> Error {
    Error::new(ErrorKind::BadKey, "the script has reported numbers that no count has").charge_unknown()
}
