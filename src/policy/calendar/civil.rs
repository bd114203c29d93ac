//! Dates of the Gregorian calendar, as numbers of days since 1970-01-01.

/// A date.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: u8,
    /// 1 to 31.
    pub(super) day: u8,
}

/// Days of 400 years, after which the calendar repeats.
const DAYS_OF_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01. Years that begin in March have their leap day at the end.
const EPOCH: i64 = 719_468;

impl Date {
    /// The number of days from 1970-01-01 to the date.
    pub(super) fn days(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = if month <= 2 { self.year - 1 } else { self.year };
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        era * DAYS_OF_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH
    }

    /// The date that is this number of days after 1970-01-01.
    pub(super) fn of_days(days: i64) -> Self {
        let (era, day_of_era) = ((days + EPOCH).div_euclid(DAYS_OF_ERA), (days + EPOCH).rem_euclid(DAYS_OF_ERA));
        let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
        let year_of_era = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let (day, month) = (small(day_of_year - (153 * shifted + 2) / 5 + 1), small((shifted + 2) % 12 + 1));
        Self { year: era * 400 + year_of_era + i64::from(month <= 2), month, day }
    }

    /// The date in this month, or the last day of the month if it has no such day.
    pub(super) fn clamped(year: i64, month: u8, day: u8) -> Self {
        let following = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        let last = Self::of_days(Self { year: following.0, month: following.1, day: 1 }.days() - 1);
        Self { day: day.min(last.day), ..last }
    }
}

/// A day or a month.
fn small(number: i64) -> u8 {
    u8::try_from(number).expect("days and months are below 32")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_counted_in_both_directions() {
        for (days, year, month, day) in
            [(0, 1970, 1, 1), (-1, 1969, 12, 31), (11_016, 2000, 2, 29), (20_454, 2026, 1, 1), (47_540, 2100, 2, 28)]
        {
            assert_eq!((Date::of_days(days), Date { year, month, day }.days()), (Date { year, month, day }, days));
        }
        // Each date follows the one before, for eight hundred years.
        let mut before = Date::of_days(-150_001);
        for days in -150_000..150_000 {
            let date = Date::of_days(days);
            assert_eq!(date.days(), days);
            let is_next_day = (date.year, date.month, date.day) == (before.year, before.month, before.day + 1);
            let is_first = date.day == 1 && Date::clamped(before.year, before.month, 31) == before;
            assert!(is_next_day || is_first, "{date:?} follows {before:?}");
            before = date;
        }
    }

    #[test]
    fn a_month_without_the_day_has_its_last_day() {
        for (year, month, day, expected) in
            [(2026, 2, 31, 28), (2028, 2, 30, 29), (2100, 2, 29, 28), (2026, 4, 31, 30), (2026, 12, 31, 31)]
        {
            assert_eq!(Date::clamped(year, month, day), Date { year, month, day: expected });
        }
    }
}
