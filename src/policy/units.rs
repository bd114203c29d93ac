//! Rates and durations as text: `60/min`, `90s`.

use std::time::Duration;

use crate::{error::ConfigError, policy::limit::Policy};

impl Policy {
    /// Creates a policy from a rate as text, such as an environment variable has it: `10/s`, `60/min`, `100/hour`,
    /// `9500/day` or `3/500ms`.
    ///
    /// The words of other libraries mean the same: `5/m`, `10/minute`, `10 per minute`, `100/30d`, `2 per 5 minutes`. A
    /// unit is `ms`, or one of `s`, `sec`, `second`; `m`, `min`, `minute`; `h`, `hour`; `d`, `day`, with or without an
    /// s at the end of a word. A number may precede it. Blanks do not matter, and letters are small.
    ///
    /// # Errors
    ///
    /// As [`Policy::new`], and [`ConfigError`] for another text. The message says what to write. A month and a year
    /// have no fixed length: they are windows of [`Policy::calendar`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let rate = std::env::var("RATE_PER_CLIENT").unwrap_or("60/min".to_owned());
    /// assert_eq!(
    ///     Policy::parse("per-client", &rate)?,
    ///     Policy::per_minute("per-client", 60)?
    /// );
    /// assert_eq!(
    ///     Policy::parse("api", "100 per minute")?,
    ///     Policy::per_minute("api", 100)?
    /// );
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse(name: impl Into<String>, rate: &str) -> Result<Self, ConfigError> {
        let name = name.into();
        let (limit, window) = limit_and_window(rate).map_err(|advice| {
            ConfigError::of_policy(&name, format_args!("{rate:?} {advice}{}", calendar_advice(rate)))
        })?;
        Self::new(name, limit, window)
    }
}

/// What to write for a window without a fixed length.
fn calendar_advice(rate: &str) -> &'static str {
    let unit = rate.trim_end().trim_end_matches('s');
    match unit.ends_with("month") || unit.ends_with("year") {
        true => ", or create a quota of the calendar with `Policy::calendar`",
        false => "",
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

/// More units of a rate, which may have an s at the end, with their lengths in milliseconds.
const RATE_UNITS: [(&str, u64); 6] =
    [("sec", 1_000), ("second", 1_000), ("min", 60_000), ("minute", 60_000), ("hour", 3_600_000), ("day", 86_400_000)];

/// Reads `500ms`, `90s`, `5m`, `2h` or `1d`. A duration that is too long for the milliseconds of a `u64` is read as the
/// longest one.
#[cfg(any(test, feature = "serde"))]
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_digits(text);
    let (_, millis) = DURATION_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(whole(number)?.saturating_mul(millis)))
}

/// Reads `10/s`, `60/min`, `3/500ms`, `5/m`, `10 per minute` or `2 per 5 minutes`: a number of units, and their window.
fn rate(text: &str) -> Option<(u64, Duration)> {
    let (limit, rest) = split_digits(text.trim());
    let rest = rest.trim_start();
    let window = rest.strip_prefix('/').or_else(|| rest.strip_prefix("per "))?;
    let (number, unit) = split_digits(window.trim_start());
    let number = if number.is_empty() { 1 } else { whole(number)? };
    let unit = unit.trim_start();
    let find = |units: &[(&str, u64)], unit| units.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
    let millis = find(&DURATION_UNITS, unit).or_else(|| find(&RATE_UNITS, unit.strip_suffix('s').unwrap_or(unit)))?;
    Some((whole(limit)?, Duration::from_millis(number.saturating_mul(millis))))
}

/// The digits at the start, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
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
    fn a_rate_for_a_month_is_a_mistake_that_names_the_calendar() {
        for (rate, names_it) in [("100/month", true), ("100 per 2 years", true), ("100/fortnight", false)] {
            let error = Policy::parse("billing", rate).unwrap_err().to_string();
            assert_eq!(error.contains("`Policy::calendar`"), names_it, "{error}");
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
            ("10/minute", 10, 60_000),
            ("10 per minute", 10, 60_000),
            ("10  per  minute", 10, 60_000),
            ("5/m", 5, 60_000),
            ("5/h", 5, 3_600_000),
            ("100/30d", 100, 30 * 86_400_000),
            ("100 per 30 days", 100, 30 * 86_400_000),
            ("60 / min\n", 60, 60_000),
            ("1 per second", 1, 1_000),
            ("7/2hours", 7, 7_200_000),
            ("7/0min", 7, 0),
        ];
        for (text, units, millis) in cases {
            assert_eq!(rate(text), Some((units, Duration::from_millis(millis))), "{text}");
        }
        for text in
            ["", "60", "/min", "60/", "60/M", "-1/s", "60/-1s", "60/min/min", "1e3/s", "1.5/s", "1/1.5s", "fast"]
        {
            assert_eq!(rate(text), None, "{text}");
        }
        for text in [
            "60 min",
            "60/mins s",
            "60per",
            "60 per",
            "60 permin",
            "60 per/min",
            "per min",
            "6 0/s",
            "60/month",
            "60/s 60/s",
        ] {
            assert_eq!(rate(text), None, "{text}");
        }
        assert_eq!(rate("1/99999999999999999999 days"), Some((1, Duration::from_millis(u64::MAX))));
        assert_eq!(rate("99999999999999999999/s"), Some((u64::MAX, Duration::from_secs(1))));
    }
}
