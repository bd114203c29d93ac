//! The windows of a calendar: where the window of a time begins and ends.

use std::sync::{Arc, Mutex, PoisonError};

use super::civil::Date;
use super::zone::{DAY_US, Zone};

/// A window, in microseconds since the Unix epoch: from `start_us` on, before `end_us`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CalendarWindow {
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
}

impl CalendarWindow {
    fn has(self, now_us: u64) -> bool {
        (self.start_us..self.end_us).contains(&now_us)
    }
}

/// Where windows begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Every {
    Day,
    /// Monday is 0.
    Week {
        weekday: u8,
    },
    Month {
        day: u8,
    },
    Year {
        month: u8,
        day: u8,
    },
}

/// When windows begin: the days, the time of day in microseconds, and the zone of both.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) every: Every,
    pub(super) of_day_us: i64,
    pub(super) zone: Zone,
}

/// The most that the clocks of a zone are moved. A window is at most that much shorter or longer than its days. Some
/// zones have moved by two hours.
const LARGEST_SHIFT_US: u64 = 3 * 3_600_000_000;

/// The latest time, 2^53 microseconds (the year 2255): the latest that doubles have exactly.
const LATEST_US: u64 = 1 << 53;

impl Rule {
    /// The window of a time.
    fn window(&self, now_us: u64) -> CalendarWindow {
        let now_us = i64::try_from(now_us.min(LATEST_US)).expect("the latest time is below 2^63");
        let mut period = self.period_of(self.zone.local(now_us).0);
        while self.start_us(period + 1) <= now_us {
            period += 1;
        }
        while self.start_us(period) > now_us {
            period -= 1;
        }
        // No window begins before the epoch, so that 0 can stand for none.
        let time = |time_us: i64| u64::try_from(time_us).unwrap_or(0).max(1);
        CalendarWindow { start_us: time(self.start_us(period)), end_us: time(self.start_us(period + 1)) }
    }

    /// The number of the period that has a local day. The window of that period may begin later.
    fn period_of(&self, day: i64) -> i64 {
        let Date { year, month, .. } = Date::of_days(day);
        match self.every {
            Every::Day => day,
            Every::Week { weekday } => (day - first_weekday(weekday)).div_euclid(7),
            Every::Month { .. } => year * 12 + i64::from(month) - 1,
            Every::Year { .. } => year,
        }
    }

    /// When the window of a period begins.
    fn start_us(&self, period: i64) -> i64 {
        let day = match self.every {
            Every::Day => period,
            Every::Week { weekday } => first_weekday(weekday) + 7 * period,
            Every::Month { day } => {
                let month = u8::try_from(period.rem_euclid(12) + 1).expect("a year has 12 months");
                Date::clamped(period.div_euclid(12), month, day).days()
            }
            Every::Year { month, day } => Date::clamped(period, month, day).days(),
        };
        self.zone.time_us(day, self.of_day_us)
    }

    /// The least and the most days of a window.
    fn days(&self) -> (u64, u64) {
        match self.every {
            Every::Day => (1, 1),
            Every::Week { .. } => (7, 7),
            Every::Month { .. } => (28, 31),
            Every::Year { .. } => (365, 366),
        }
    }

    /// The rule as a part of a Redis key, without colons: rules with one text have the same windows.
    fn text(&self) -> String {
        const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let days = match self.every {
            Every::Day => "day".to_owned(),
            Every::Week { weekday } => format!("week-{}", WEEKDAYS[usize::from(weekday % 7)]),
            Every::Month { day } => format!("month-{day}"),
            Every::Year { month, day } => format!("year-{month}-{day}"),
        };
        let (seconds, micros) = (self.of_day_us / 1_000_000, self.of_day_us % 1_000_000);
        let time = format!("{:02}{:02}", seconds / 3_600, seconds / 60 % 60);
        let rest = match (seconds % 60, micros) {
            (0, 0) => String::new(),
            (seconds, micros) => format!("{seconds:02}.{micros:06}"),
        };
        format!("{days}T{time}{rest}@{}", self.zone)
    }
}

/// A day of this weekday, in days since 1970-01-01, a Thursday.
fn first_weekday(weekday: u8) -> i64 {
    i64::from(weekday) - 3
}

/// The windows of a calendar. Clones share the window that was computed last.
#[derive(Clone, Debug)]
pub(crate) struct CalendarWindows(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rule: Rule,
    text: Box<str>,
    last: Mutex<CalendarWindow>,
}

impl CalendarWindows {
    pub(super) fn new(rule: Rule) -> Self {
        let text = rule.text().into_boxed_str();
        Self(Arc::new(Inner { rule, text, last: Mutex::default() }))
    }

    /// The window of a time.
    pub(crate) fn at(&self, now_us: u64) -> CalendarWindow {
        // The value is replaced as a whole, so a poisoned lock is usable.
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !last.has(now_us) {
            *last = self.0.rule.window(now_us);
        }
        *last
    }

    /// What tells the calendar from others in a Redis key. It has no colons.
    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// The word of the period: `day`, `week`, `month` or `year`.
    #[cfg(feature = "grpc")]
    pub(crate) fn period(&self) -> &'static str {
        match self.0.rule.every {
            Every::Day => "day",
            Every::Week { .. } => "week",
            Every::Month { .. } => "month",
            Every::Year { .. } => "year",
        }
    }

    /// No window is longer, in microseconds.
    pub(crate) fn longest_us(&self) -> u64 {
        self.0.rule.days().1 * DAY_US.unsigned_abs() + LARGEST_SHIFT_US
    }

    /// No window is shorter, in microseconds.
    pub(crate) fn shortest_us(&self) -> u64 {
        self.0.rule.days().0 * DAY_US.unsigned_abs() - LARGEST_SHIFT_US
    }
}

impl PartialEq for CalendarWindows {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}
