//! Calendar windows: their boundaries, and random traces over years of them.

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use tollgate::{Calendar, Policy, policy::Weekday};

use super::agreement::{Oracles, of_seed, trace};
use crate::failure::{Tested, ensure, ensure_eq};
use crate::{feature::Feature, random::Random, tested_store::TestedStore};

const SEEDS: u64 = 12;
const DAY_US: u64 = 86_400_000_000;
const MINUTE_US: u64 = 60_000_000;
const MICROSECOND: Duration = Duration::from_micros(1);
/// 2025-01-01, a Wednesday. The clocks of tests start a year later.
const FIRST_DAY: u64 = 20_089;
const DAYS: u64 = 40 * 366;

pub(super) async fn a_calendar_window_ends_at_its_boundary_and_not_earlier(store: TestedStore) -> Tested {
    store.requires(Feature::Calendars)?;
    let policy = Policy::calendar("p", 3, Calendar::monthly().on_day(31).at(9, 0).zone("+05:30"))?;
    // 2026-02-28 09:00, the last day of a month without a 31st, and 2026-03-31 09:00.
    let (start_us, end_us) = (1_772_249_400_000_000, 1_774_927_800_000_000);
    store.clock.set_us(start_us - 1);
    let before = store.check("k", &policy, 3).await?;
    ensure_eq!(before.policies()[0].reset, MICROSECOND, "reset before the window");
    store.clock.advance(MICROSECOND);
    let spent = store.check("k", &policy, 3).await?;
    ensure!(spent.is_allowed(), "denied at the start of the window");
    ensure_eq!(spent.policies()[0].reset, Duration::from_micros(end_us - start_us), "reset");
    store.clock.set_us(end_us - 1);
    let denied = store.check("k", &policy, 1).await?;
    ensure!(!denied.is_allowed(), "admitted 1 us before the end of the window");
    ensure_eq!(denied.retry_after(), Some(MICROSECOND), "retry_after");
    store.clock.advance(MICROSECOND);
    ensure!(store.check("k", &policy, 3).await?.is_allowed(), "denied at the end of the window");
    Ok(())
}

pub(super) async fn law_12_random_traces_under_calendars_agree_with_the_oracle(store: TestedStore) -> Tested {
    store.requires(Feature::Calendars)?;
    let by_hand = store.requires(Feature::CountChanges).is_ok();
    let can_count_rejected = store.requires(Feature::CountRejected).is_ok();
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let (mut policies, mut starts_us) = (Vec::new(), HashMap::new());
        for number in 0..5 {
            let (name, (calendar, starts)) = (format!("p{number}-{seed}"), calendar(&mut random, number));
            let limit = *random.pick(&[1, 3, 20, 1_000, Policy::MAX_LIMIT]);
            let policy = Policy::calendar(name.clone(), limit, calendar)?;
            policies.push(policy.with_denials_counted(can_count_rejected && random.below(3) == 0));
            starts_us.insert(name, starts);
        }
        let oracles = Oracles::of_calendars(starts_us);
        trace(&store, &mut random, &policies, by_hand, oracles).await.map_err(|ended| of_seed(seed, ended))?;
    }
    Ok(())
}

/// A random calendar of this kind, and the starts of its windows: every day of the years is looked at.
fn calendar(random: &mut Random, kind: u64) -> (Calendar, Vec<u64>) {
    let (hour, minute) = (random.below(24), random.below(60));
    let of_day_us = (hour * 60 + minute) * MINUTE_US;
    let offset = random.below(28) * 30; // minutes, west of UTC first
    let (ahead_us, west_us) = (offset * MINUTE_US, 12 * 60 * MINUTE_US);
    let (sign, minutes) = if ahead_us < west_us { ('-', 720 - offset) } else { ('+', offset - 720) };
    let zone = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
    let (weekday, day, month) = (random.below(7), random.cost(31), random.cost(12));
    let weekdays = [
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
        Weekday::Saturday,
        Weekday::Sunday,
    ];
    let calendar = match kind {
        0 => Calendar::daily(),
        1 => Calendar::weekly().on(weekdays[weekday as usize]),
        2 => Calendar::monthly().on_day(day as u8),
        3 => Calendar::yearly().in_month(month as u8).on_day(day as u8),
        _ => {
            // An anniversary of 1984-12-DD at this local time.
            let start_us = (5_448 + day - 1) * DAY_US + of_day_us + west_us - ahead_us;
            Calendar::anchored(UNIX_EPOCH + Duration::from_micros(start_us))
        }
    };
    let calendar = if kind < 4 { calendar.at(hour as u8, minute as u8) } else { calendar };
    let mut starts_us = Vec::new();
    let mut date = (2025, 1, 1);
    for number in 0..DAYS {
        let is_last = date.2 == days_in(date.0, date.1);
        let is_day = date.2 == day || is_last && date.2 < day;
        let is_start = match kind {
            0 => true,
            1 => (number + 2) % 7 == weekday,
            3 => is_day && date.1 == month,
            _ => is_day,
        };
        if is_start {
            starts_us.push((FIRST_DAY + number) * DAY_US + of_day_us + west_us - ahead_us);
        }
        date = match date {
            (year, 12, 31) => (year + 1, 1, 1),
            (year, month, _) if is_last => (year, month + 1, 1),
            (year, month, day) => (year, month, day + 1),
        };
    }
    (calendar.zone(zone), starts_us)
}

fn days_in(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
