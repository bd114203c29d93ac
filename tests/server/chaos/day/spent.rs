//! Judges what all processes have spent together. The history is processed as it arrives, so memory stays constant.

use std::{collections::BTreeMap, time::Duration};

/// The window of all limits.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_US: u64 = WINDOW.as_micros() as u64;

/// Units that were spent or held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// When: between these times. Slots are held for all of it.
    pub(super) from_us: u64,
    pub(super) until_us: u64,
    pub(super) units: u64,
    /// The limit of the decision.
    pub(super) limit: u64,
}

const WORD: &str = "spent ";
/// The count whose units are slots.
pub(super) const SLOTS: &str = "slots";

impl Spent {
    pub(super) fn line(&self, count: &str) -> String {
        let Self { from_us, until_us, units, limit } = self;
        format!("{WORD}{count} {from_us} {until_us} {units} {limit}")
    }

    pub(super) fn parse(line: &str) -> Option<(String, Self)> {
        let (count, numbers) = line.strip_prefix(WORD)?.split_once(' ')?;
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        let [from_us, until_us, units, limit] = numbers[..] else { return None };
        Some((count.to_owned(), Self { from_us, until_us, units, limit }))
    }
}

/// What was found about one count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) spent: u64,
    /// Windows, or instants of slots, with more than the largest limit in force.
    pub(super) over: u64,
    /// The most units of one, and the largest limit.
    pub(super) most: u64,
    pub(super) limit: u64,
}

#[derive(Debug, Default)]
pub(super) struct Spendings(BTreeMap<String, (Vec<Spent>, Found)>);

impl Spendings {
    pub(super) fn add(&mut self, count: &str, spent: Spent) {
        self.0.entry(count.to_owned()).or_default().0.push(spent);
    }

    pub(super) fn found(&self) -> Vec<Found> {
        self.0.values().map(|(_, found)| *found).collect()
    }

    /// Judges all windows that begin with a spending before `time_us`, which all processes have reported.
    pub(super) fn judge(&mut self, time_us: u64) {
        for (count, (all, found)) in &mut self.0 {
            all.sort_by_key(|spent| spent.from_us);
            let begun = all.partition_point(|spent| spent.from_us < time_us.saturating_sub(WINDOW_US));
            for first in 0..begun {
                let Spent { from_us, units, .. } = all[first];
                let (sum, limit) = if count == SLOTS { held(all, from_us) } else { within(&all[first..], from_us) };
                found.spent += units;
                found.most = found.most.max(sum);
                found.limit = found.limit.max(limit);
                found.over += u64::from(sum > limit);
            }
            // Slots may be held for longer than the window.
            let keeps = |spent: &Spent| spent.from_us >= time_us.saturating_sub(WINDOW_US);
            let is_held = |spent: &Spent| count == SLOTS && spent.until_us >= time_us.saturating_sub(WINDOW_US);
            all.retain(|spent| keeps(spent) || is_held(spent));
        }
    }
}

/// The units that were certainly spent in the window from this time, and the largest limit of their decisions.
fn within(all: &[Spent], from_us: u64) -> (u64, u64) {
    let end = from_us + WINDOW_US;
    sum(all.iter().take_while(|spent| spent.from_us < end).filter(|spent| spent.until_us < end))
}

/// The slots that were certainly held at this time.
fn held(all: &[Spent], at_us: u64) -> (u64, u64) {
    sum(all.iter().take_while(|spent| spent.from_us <= at_us).filter(|spent| spent.until_us > at_us))
}

fn sum<'a>(spent: impl Iterator<Item = &'a Spent>) -> (u64, u64) {
    spent.fold((0, 0), |(units, limit), spent| (units + spent.units, limit.max(spent.limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(count: &str, all: &[(u64, u64, u64, u64)]) -> Found {
        let mut spendings = Spendings::default();
        for (from_us, until_us, units, limit) in all.iter().copied() {
            spendings.add(count, Spent { from_us, until_us, units, limit });
            spendings.judge(from_us);
        }
        spendings.judge(u64::MAX);
        spendings.found()[0]
    }

    #[test]
    fn a_window_with_more_than_its_limit_is_seen() {
        let second = WINDOW_US;
        assert_eq!(found("p", &[(1, 1, 3, 4), (5, 9, 1, 4), (second, second + 1, 1, 4)]).over, 0);
        assert_eq!(found("p", &[(1, 1, 3, 4), (5, 9, 1, 4), (second - 2, second, 1, 4)]).over, 1);
        assert_eq!(found("p", &[(1, 1, 3, 4), (5, 5, 2, 6)]).over, 0, "the limit was raised");
    }

    #[test]
    fn more_slots_at_once_than_the_limit_are_seen() {
        let second = WINDOW_US;
        assert_eq!(found(SLOTS, &[(1, 9 * second, 1, 2), (2, 5, 1, 2), (5, 9, 1, 2)]).over, 0);
        assert_eq!(found(SLOTS, &[(1, 9 * second, 1, 1), (7 * second, 8 * second, 1, 1)]).over, 1);
    }
}
