//! Calendars: windows that begin at a local time of a day, week, month or year.

mod civil;
mod policies;
mod windows;
mod zone;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "redis")]
pub(crate) use self::windows::CalendarWindow;
pub(crate) use self::windows::CalendarWindows;
use self::windows::{Every, Rule};
use self::zone::Zone;

/// When the windows of a [calendar policy](crate::Policy::calendar) begin: each day, week, month or year at a local
/// time, or on the anniversaries of a start.
///
/// The next window begins where one ends, so windows have the lengths of real days and months. A month without the day
/// of its start, such as February for [`on_day(31)`](Self::on_day), starts on its last day. A local time that a zone
/// skips, when its clocks go forward, is the time as much later; one that comes twice is the earlier of both.
///
/// Defaults to midnight UTC, on Monday, on the first day of the month and in January. No setter returns a `Result`:
/// [`Policy::calendar`](crate::Policy::calendar) returns the first mistake.
///
/// # Examples
///
/// ```
/// use tollgate::{Calendar, Policy, policy::Weekday};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let monthly = Policy::calendar("billing", 100_000, Calendar::monthly())?;
/// let weekly = Calendar::weekly().on(Weekday::Sunday).at(18, 0).zone("-03:00");
/// let reports = Policy::calendar("reports", 20, weekly)?;
/// # let _ = (monthly, reports);
/// # Ok(())
/// # }
/// ```
///
/// With feature `zones`, in the zone of a place:
///
/// ```
/// use tollgate::{Calendar, Policy};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let ninth = Calendar::monthly().on_day(15).at(9, 0).zone("Europe/Berlin");
/// let billing = Policy::calendar("billing", 100_000, ninth)?;
/// # let _ = billing;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct Calendar {
    period: Period,
    weekday: Option<Weekday>,
    day: Option<u8>,
    month: Option<u8>,
    time: Option<(u8, u8)>,
    zone: String,
    /// The first mistake.
    mistake: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Period {
    Day,
    Week,
    Month,
    Year,
    /// A month, from a day and a time of day that a start has, in microseconds since the Unix epoch.
    Anniversary(i64),
}

/// A day of the week.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Calendar {
    fn new(period: Period) -> Self {
        let zone = "UTC".to_owned();
        Self { period, weekday: None, day: None, month: None, time: None, zone, mistake: None }
    }

    /// Windows of a day.
    pub fn daily() -> Self {
        Self::new(Period::Day)
    }

    /// Windows of a week, from Monday on unless [`on`](Self::on) sets another day.
    pub fn weekly() -> Self {
        Self::new(Period::Week)
    }

    /// Windows of a month, from its first day on unless [`on_day`](Self::on_day) sets another day.
    pub fn monthly() -> Self {
        Self::new(Period::Month)
    }

    /// Windows of a year, from the first of January on unless [`in_month`](Self::in_month) and
    /// [`on_day`](Self::on_day) set another day.
    pub fn yearly() -> Self {
        Self::new(Period::Year)
    }

    /// Windows of a month that begin on the day and at the time of day of `start`, to the microsecond: for
    /// subscriptions, each with a policy of its own.
    ///
    /// Of a start on the 31st at 14:05 UTC, each window begins on the last day of a month at 14:05 UTC. With a
    /// [zone](Self::zone), the day and the time of day are those that its clocks show at the start. Windows before the
    /// start are no different.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use tollgate::{Calendar, Policy};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let subscribed = UNIX_EPOCH + Duration::from_secs(1_769_868_300);
    /// let included =
    ///     Policy::calendar("included", 50_000, Calendar::anchored(subscribed))?;
    /// # let _ = included;
    /// # Ok(())
    /// # }
    /// ```
    pub fn anchored(start: impl Into<SystemTime>) -> Self {
        let start = start.into();
        // Rounded down.
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let start_us = match start.duration_since(UNIX_EPOCH) {
            Ok(since) => micros(since),
            Err(before) => -micros(before.duration() + Duration::from_nanos(999)),
        };
        let calendar = Self::new(Period::Anniversary(start_us));
        match start_us.unsigned_abs() < 1 << 53 {
            true => calendar,
            false => calendar.mistaken("the start of a calendar is out of range; use one within 285 years from 1970"),
        }
    }

    /// Sets the day of the week on which a [weekly](Self::weekly) window begins.
    pub fn on(self, weekday: Weekday) -> Self {
        Self { weekday: Some(weekday), ..self }
    }

    /// Sets the day of the month on which a [monthly](Self::monthly) or [yearly](Self::yearly) window begins, from 1
    /// to 31. A month without that day begins its window on its last day.
    pub fn on_day(self, day: u8) -> Self {
        match day {
            1..=31 => Self { day: Some(day), ..self },
            _ => self.mistaken(format_args!("day {day} is in no month; use 1 to 31")),
        }
    }

    /// Sets the month in which a [yearly](Self::yearly) window begins, from 1 to 12.
    pub fn in_month(self, month: u8) -> Self {
        match month {
            1..=12 => Self { month: Some(month), ..self },
            _ => self.mistaken(format_args!("month {month} is in no year; use 1 to 12")),
        }
    }

    /// Sets the local time at which windows begin. Defaults to 0:00.
    pub fn at(self, hour: u8, minute: u8) -> Self {
        match (hour, minute) {
            (0..=23, 0..=59) => Self { time: Some((hour, minute)), ..self },
            _ => self.mistaken(format_args!("{hour}:{minute:02} is no time of a day; use 0:00 to 23:59")),
        }
    }

    /// Sets the zone of the local time: `"UTC"`, an offset such as `"+05:30"`, or, with feature `zones`, a name such as
    /// `"Europe/Berlin"`. Defaults to UTC.
    ///
    /// The rules of a name are those of the machine's zone database, or else those that were compiled into the service,
    /// read when the policy is made. Where instances that share a store have different rules, the first charge of a key
    /// in a window decides where that window ends, for all of them.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        Self { zone: zone.into(), ..self }
    }

    /// Keeps the first mistake.
    fn mistaken(mut self, message: impl fmt::Display) -> Self {
        self.mistake.get_or_insert_with(|| message.to_string());
        self
    }

    /// The windows, or the first mistake.
    fn windows(&self) -> Result<CalendarWindows, String> {
        if let Some(mistake) = &self.mistake {
            return Err(mistake.clone());
        }
        let Self { period, weekday, day, month, time, ref zone, .. } = *self;
        let is_anniversary = matches!(period, Period::Anniversary(_));
        for (is_wrong, what, instead) in [
            (weekday.is_some() && period != Period::Week, "day of the week, `on`", "a weekly"),
            (day.is_some() && !matches!(period, Period::Month | Period::Year), "`on_day`", "a monthly or yearly"),
            (month.is_some() && period != Period::Year, "`in_month`", "a yearly"),
            (time.is_some() && is_anniversary, "time, `at`", "another"),
        ] {
            if is_wrong {
                return Err(format!("the calendar has no {what}; leave it out, or make it {instead} calendar"));
            }
        }
        let zone = Zone::parse(zone)?;
        let (hour, minute) = time.unwrap_or_default();
        let of_day_us = (i64::from(hour) * 60 + i64::from(minute)) * 60_000_000;
        let day = day.unwrap_or(1);
        let (every, of_day_us) = match period {
            Period::Day => (Every::Day, of_day_us),
            Period::Week => (Every::Week { weekday: weekday.unwrap_or(Weekday::Monday) as u8 }, of_day_us),
            Period::Month => (Every::Month { day }, of_day_us),
            Period::Year => (Every::Year { month: month.unwrap_or(1), day }, of_day_us),
            Period::Anniversary(start_us) => {
                let (day, of_day_us) = zone.local(start_us);
                (Every::Month { day: civil::Date::of_days(day).day }, of_day_us)
            }
        };
        Ok(CalendarWindows::new(Rule { every, of_day_us, zone }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn calendars_with_other_windows_have_other_texts_in_redis_keys() {
        let start = UNIX_EPOCH + Duration::from_micros(1);
        let calendars = [
            Calendar::daily(),
            Calendar::daily().at(0, 1),
            Calendar::daily().at(1, 0),
            Calendar::daily().zone("+01:00"),
            Calendar::daily().zone("-01:00"),
            Calendar::weekly(),
            Calendar::weekly().on(Weekday::Tuesday),
            Calendar::monthly(),
            Calendar::monthly().on_day(12),
            Calendar::yearly(),
            Calendar::yearly().on_day(2),
            Calendar::yearly().in_month(2),
            Calendar::yearly().in_month(1).on_day(12),
            Calendar::anchored(start),
        ];
        let text = |calendar: &Calendar| calendar.windows().unwrap().text().to_owned();
        let texts: BTreeSet<String> = calendars.iter().map(text).collect();
        assert_eq!(texts.len(), calendars.len(), "{texts:?}");
        assert!(texts.iter().all(|text| !text.contains([':', '{', '}'])), "{texts:?}");
        assert_eq!(text(&Calendar::anchored(start)), "month-1T000000.000001@UTC");
        // Before 1970, a start is rounded down too.
        let before = UNIX_EPOCH - Duration::from_nanos(1_500);
        assert_eq!(text(&Calendar::anchored(before)), "month-31T235959.999998@UTC");
        // The same windows.
        assert_eq!(text(&Calendar::anchored(UNIX_EPOCH)), text(&Calendar::monthly()));
        assert_eq!(text(&Calendar::daily().zone("+00:00")), text(&Calendar::daily()));
    }
}
