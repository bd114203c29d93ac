//! Reads a calendar: `calendar`, `starts` and `zone`, and the limit of its windows.

use super::fields::{self, Field};
use super::mistake::{Mistakes, Place};
use super::section::{self, Read, Section, shown};
use super::tree::Tree;
use crate::policy::{Calendar, Weekday};

/// The period of a calendar.
#[derive(Clone, Copy)]
pub(super) enum Period {
    Day,
    Week,
    Month,
    Year,
}

/// The words of `calendar`.
pub(super) const WORDS: [(&str, Period); 4] =
    [("day", Period::Day), ("week", Period::Week), ("month", Period::Month), ("year", Period::Year)];

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// Reads the limit and the calendar of a table, of whose calendar `period` was read, and the place of the mistake that
/// the zone may be. `None` if one of them has another mistake.
pub(super) fn read(
    period: &Read<Period>,
    section: &mut Section,
    mistakes: &mut Mistakes,
) -> Option<(u64, Calendar, Place)> {
    for field in fields::NOT_WITH_CALENDAR {
        if section.take(field).is_some() {
            let message = format!("a calendar has no {}; leave out {} or calendar", field.name, field.name);
            mistakes.add(section.place_of(field), message);
        }
    }
    let limit = section.read(&fields::LIMIT, mistakes, section::whole);
    if limit.is_absent() {
        mistakes.add(section.place_of(&fields::LIMIT), "a calendar needs a limit; write limit = 60 or the like");
    }
    let starts = section.take(&fields::STARTS);
    let zone = section.read(&fields::ZONE, mistakes, section::text).value();
    let period = *period.as_ref()?;
    let calendar = starts.map_or(Ok(plain(period)), |starts| calendar(period, &starts));
    let calendar = calendar.map_err(|message| mistakes.add(section.place_of(&fields::STARTS), message)).ok()?;
    let place = section.place_of(if zone.is_some() { &fields::ZONE } else { &fields::CALENDAR });
    Some((limit.value()?, zone.into_iter().fold(calendar, Calendar::zone), place))
}

/// A table without a calendar has neither a start nor a zone.
pub(super) fn refuse_others(section: &mut Section, mistakes: &mut Mistakes) {
    for field in [&fields::STARTS, &fields::ZONE] {
        if section.take(field).is_some() {
            let message = format!("{} needs a calendar; write calendar = \"month\" or the like", field.name);
            mistakes.add(section.place_of(field), message);
        }
    }
}

/// Reads the word of `calendar`.
pub(super) fn period(_: &Field, value: Tree) -> Result<Period, String> {
    section::word(&WORDS, &value)
}

fn plain(period: Period) -> Calendar {
    match period {
        Period::Day => Calendar::daily(),
        Period::Week => Calendar::weekly(),
        Period::Month => Calendar::monthly(),
        Period::Year => Calendar::yearly(),
    }
}

/// The calendar with a start: a day, a time, or both with a blank between them.
fn calendar(period: Period, starts: &Tree) -> Result<Calendar, String> {
    let (of, examples) = match period {
        Period::Day => ("day", "\"09:00\""),
        Period::Week => ("week", "\"sunday\", \"sunday 18:00\" or \"18:00\""),
        Period::Month => ("month", "\"15\", \"15 09:00\" or \"09:00\""),
        Period::Year => ("year", "\"04-01\", \"04-01 09:00\" or \"09:00\""),
    };
    let text = if let Tree::Text(text) = starts { text } else { "" };
    let read = match text.split_once(' ') {
        Some((day, time)) => with_day(period, plain(period), day).and_then(|calendar| with_time(calendar, time)),
        None if text.contains(':') => with_time(plain(period), text),
        None => with_day(period, plain(period), text),
    };
    read.ok_or_else(|| format!("{} is not a start of a {of}; write {examples}", shown(starts)))
}

fn with_time(calendar: Calendar, time: &str) -> Option<Calendar> {
    let (hour, minute) = time.split_once(':')?;
    Some(calendar.at(two_digits(hour, 0, 23)?, two_digits(minute, 0, 59)?))
}

fn with_day(period: Period, calendar: Calendar, day: &str) -> Option<Calendar> {
    match period {
        Period::Day => None,
        Period::Week => {
            let (_, weekday) = WEEKDAYS.into_iter().find(|(word, _)| *word == day)?;
            Some(calendar.on(weekday))
        }
        Period::Month => {
            let padded = if day.len() == 1 { format!("0{day}") } else { day.to_owned() };
            Some(calendar.on_day(two_digits(&padded, 1, 31)?))
        }
        Period::Year => {
            let (month, day) = day.split_once('-')?;
            Some(calendar.in_month(two_digits(month, 1, 12)?).on_day(two_digits(day, 1, 31)?))
        }
    }
}

fn two_digits(text: &str, least: u8, most: u8) -> Option<u8> {
    let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && (least..=most).contains(number))
}
