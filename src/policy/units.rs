//! Rates and durations as text: `60/min`, `90s`.

use std::time::Duration;

use crate::{error::ConfigError, policy::limit::Policy};

impl Policy {
    /// Creates a policy from a rate as text, such as an environment variable has it: `10/s`, `60/min`, `100/hour`,
    /// `9500/day` or `3/500ms`.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`], and [`ConfigError`] for another text. The message says what to write.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let rate = std::env::var("RATE_PER_CLIENT").unwrap_or("60/min".to_owned());
    /// assert_eq!(Policy::parse("per-client", &rate)?, Policy::per_minute("per-client", 60)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse(name: impl Into<String>, rate: &str) -> Result<Self, ConfigError> {
        let name = name.into();
        let (limit, window) = limit_and_window(rate)
            .map_err(|advice| ConfigError::of_policy(&name, format_args!("{rate:?} {advice}")))?;
        Self::new(name, limit, window)
    }
}

/// Reads a rate: the units, at least 1, and their window. The error says what is wrong with the text and what to write.
pub(crate) fn limit_and_window(text: &str) -> Result<(u64, Duration), String> {
    const ADVICE: &str = "is not a rate; write \"10/s\", \"60/min\", \"100/hour\", \"9500/day\" or \"3/500ms\"";
    let (limit, window) = rate(text).ok_or(ADVICE)?;
    match limit {
        0 => Err("lets nothing through; write 1 unit or more".to_owned()),
        1..=Policy::MAX_LIMIT => Ok((limit, window)),
        _ => Err(format!("is out of range; write at most {} units", Policy::MAX_LIMIT)),
    }
}

/// The units of a duration, with their lengths in milliseconds.
const DURATION_UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// The units of a rate, with their lengths in seconds.
const RATE_UNITS: [(&str, u64); 5] = [("s", 1), ("sec", 1), ("min", 60), ("hour", 3_600), ("day", 86_400)];

/// Reads `500ms`, `90s`, `5m`, `2h` or `1d`. A duration that is too long for the milliseconds of a `u64` is read as the
/// longest one.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, millis) = DURATION_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(whole(number)?.saturating_mul(millis)))
}

/// Reads `10/s`, `10/sec`, `60/min`, `100/hour`, `9500/day` or `3/500ms`: a number of units, and their window.
fn rate(text: &str) -> Option<(u64, Duration)> {
    let (number, window) = text.split_once('/')?;
    let named = RATE_UNITS.into_iter().find(|(name, _)| *name == window);
    let window = named.map(|(_, seconds)| Duration::from_secs(seconds)).or_else(|| duration(window))?;
    Some((whole(number)?, window))
}

/// Reads digits, without a sign. A number that is too large for a `u64` is read as the largest one.
fn whole(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        let cases =
            [("500ms", 500), ("90s", 90_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0s", 0)];
        for (text, millis) in cases {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["99999999999999999999s", "18446744073709551615d"] {
            assert_eq!(duration(text), Some(Duration::from_millis(u64::MAX)), "{text}");
        }
        for text in ["", "5", "s", "-5s", "+5s", "1.5s", "5 s", " 5s", "5s ", "5min", "5S", "5µs", "٥s", "1h30m"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn rates_have_a_number_and_a_window() {
        let cases = [
            ("10/s", 10, 1_000),
            ("10/sec", 10, 1_000),
            ("60/min", 60, 60_000),
            ("7/hour", 7, 3_600_000),
            ("9500/day", 9_500, 86_400_000),
            ("3/500ms", 3, 500),
            ("3/2m", 3, 120_000),
            ("0/s", 0, 1_000),
        ];
        for (text, units, millis) in cases {
            assert_eq!(rate(text), Some((units, Duration::from_millis(millis))), "{text}");
        }
        for text in ["", "60", "/min", "60/", "60/m", "60/minute", "-1/s", "60 / min", "60/min/min", "1e3/s", "fast"] {
            assert_eq!(rate(text), None, "{text}");
        }
        assert_eq!(rate("99999999999999999999/s"), Some((u64::MAX, Duration::from_secs(1))));
    }
}
