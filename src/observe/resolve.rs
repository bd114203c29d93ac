//! The event of a failed resolution.

use std::{fmt, time::Duration};

use crate::error::OneLine;

/// A [`resolve`](crate::resolve::resolve) layer got no answer from its closure. See
/// [`Observer::on_resolve_failure`](super::Observer::on_resolve_failure).
///
/// Its `Display` is for operators. It contains the error text of the closure.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ResolveFailure<'a> {
    /// The text of the closure's error; `None` if the closure did not answer in time.
    pub error: Option<&'a str>,
    /// Time from the call of the closure to its failure.
    pub elapsed: Duration,
    /// The type that was not inserted.
    pub type_name: &'static str,
}

impl<'a> ResolveFailure<'a> {
    pub(crate) fn new(error: Option<&'a str>, elapsed: Duration, type_name: &'static str) -> Self {
        Self { error, elapsed, type_name }
    }

    /// The failure in one word, for metrics and logs.
    pub fn cause(&self) -> &'static str {
        if self.error.is_some() { "failed" } else { "timed_out" }
    }
}

impl fmt::Display for ResolveFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, elapsed, type_name } = self;
        match error {
            Some(error) => write!(f, "A request was not resolved: {}.", OneLine(error)),
            None => write!(
                f,
                "A request was not resolved within {elapsed:?}; `ResolveLayer::with_timeout` allows more time."
            ),
        }?;
        write!(f, " It has no extension {type_name}, so limits with this key treat it by their `MissingKey`.")
    }
}
