//! Zones: a fixed offset from UTC, or the rules of a place (feature `zones`).

use std::fmt;

#[cfg(feature = "zones")]
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

#[cfg(feature = "zones")]
use super::civil::Date;

pub(super) const DAY_US: i64 = 86_400_000_000;
const SECOND_US: i64 = 1_000_000;

/// A zone.
#[derive(Clone, Debug)]
pub(super) enum Zone {
    /// This many seconds are added to UTC.
    Fixed(i64),
    #[cfg(feature = "zones")]
    Named(TimeZone),
}

impl Zone {
    /// Reads `UTC`, an offset such as `+05:30`, or the name of a zone. The error says what to write.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "UTC" {
            return Ok(Self::Fixed(0));
        }
        if let Some(offset) = offset_seconds(text) {
            return Ok(Self::Fixed(offset));
        }
        named(text)
    }

    /// The local day at a time, in days since 1970-01-01, and the microseconds of that day.
    pub(super) fn local(&self, time_us: i64) -> (i64, i64) {
        let local_us = time_us + self.offset_seconds(time_us) * SECOND_US;
        (local_us.div_euclid(DAY_US), local_us.rem_euclid(DAY_US))
    }

    fn offset_seconds(&self, #[cfg_attr(not(feature = "zones"), expect(unused))] time_us: i64) -> i64 {
        match self {
            Self::Fixed(offset) => *offset,
            #[cfg(feature = "zones")]
            Self::Named(zone) => {
                Timestamp::from_microsecond(time_us).map_or(0, |time| zone.to_offset(time).seconds().into())
            }
        }
    }

    /// The time at which the clocks of the zone show these microseconds of a day. Of a time that they skip, it is the
    /// time as far behind the jump; of one that they show twice, the earlier one.
    pub(super) fn time_us(&self, day: i64, of_day_us: i64) -> i64 {
        match self {
            Self::Fixed(offset) => day * DAY_US + of_day_us - offset * SECOND_US,
            #[cfg(feature = "zones")]
            Self::Named(zone) => {
                let found = date_time(day, of_day_us).map(|local| zone.to_ambiguous_timestamp(local).compatible());
                // Outside of the years -9999 to 9999 there are no rules.
                found.and_then(Result::ok).map_or(day * DAY_US + of_day_us, Timestamp::as_microsecond)
            }
        }
    }
}

/// `UTC`, the offset without a colon, or the name: the part of a Redis key.
impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(0) => f.write_str("UTC"),
            Self::Fixed(offset) => {
                let (sign, minutes) = (if *offset < 0 { '-' } else { '+' }, offset.abs() / 60);
                write!(f, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
            }
            #[cfg(feature = "zones")]
            Self::Named(zone) => f.write_str(zone.iana_name().unwrap_or("UTC")),
        }
    }
}

/// Reads `+05:30` or `-03:00`, below 24 hours.
fn offset_seconds(text: &str) -> Option<i64> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = text.strip_prefix(['+', '-'])?.split_once(':')?;
    let number = |text: &str, below: i64| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| is_number && *number < below)
    };
    Some(sign * (number(hours, 24)? * 3_600 + number(minutes, 60)? * 60))
}

#[cfg(feature = "zones")]
fn named(text: &str) -> Result<Zone, String> {
    TimeZone::get(text).ok().filter(|zone| zone.iana_name().is_some()).map(Zone::Named).ok_or_else(|| {
        format!(
            "{text:?} is not a zone; write a name such as \"Europe/Berlin\", \"UTC\", or an offset such as \"+05:30\""
        )
    })
}

#[cfg(not(feature = "zones"))]
fn named(text: &str) -> Result<Zone, String> {
    Err(format!(
        "{text:?} is not a zone without the feature `zones` of tollgate; switch it on, or write \"UTC\" or an offset \
         such as \"+05:30\""
    ))
}

#[cfg(feature = "zones")]
fn date_time(day: i64, of_day_us: i64) -> Option<DateTime> {
    let Date { year, month, day } = Date::of_days(day);
    let (seconds, micros) = (of_day_us / SECOND_US, of_day_us % SECOND_US);
    let part = |number: i64| i8::try_from(number).ok();
    DateTime::new(
        i16::try_from(year).ok()?,
        part(month.into())?,
        part(day.into())?,
        part(seconds / 3_600)?,
        part(seconds / 60 % 60)?,
        part(seconds % 60)?,
        i32::try_from(micros * 1_000).ok()?,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_has_two_digits_on_both_sides_of_its_colon() {
        for (text, offset) in [("+05:30", 19_800), ("-03:00", -10_800), ("+00:00", 0), ("-23:59", -86_340)] {
            assert_eq!(offset_seconds(text), Some(offset), "{text}");
        }
        for text in ["05:30", "+5:30", "+0530", "+24:00", "+05:60", "+05:30:00", "+-5:30", "", "+", "+:"] {
            assert_eq!(offset_seconds(text), None, "{text}");
        }
        let names = ["UTC", "+05:30", "-03:00", "+00:00"].map(|text| Zone::parse(text).unwrap().to_string());
        assert_eq!(names, ["UTC", "+0530", "-0300", "UTC"]);
    }

    #[test]
    #[cfg(feature = "zones")]
    fn a_name_is_read_in_any_case_and_written_as_the_database_has_it() {
        assert_eq!(Zone::parse("europe/berlin").unwrap().to_string(), "Europe/Berlin");
        let error = Zone::parse("Europe/Atlantis").unwrap_err();
        assert!(error.starts_with("\"Europe/Atlantis\" is not a zone; write a name"), "{error}");
    }

    #[test]
    #[cfg(not(feature = "zones"))]
    fn a_name_without_the_feature_says_which_feature() {
        assert!(Zone::parse("Europe/Berlin").unwrap_err().contains("feature `zones`"));
    }
}
