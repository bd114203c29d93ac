//! Judges the lives of holds and charges: how many units were certainly held or charged at each instant.

use super::record::{Answer, End, Life};
use super::worker::{KEYS, LIMIT, TTL, WINDOW};

/// What the judge has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Calls that reached the store.
    pub(super) asked: u64,
    pub(super) denied: u64,
    /// Instants at which more units were certainly held or charged than the limit and the underestimates.
    pub(super) over: u64,
    /// The most units at an instant, without the underestimates.
    pub(super) most: i64,
    /// Settlements above what was held.
    pub(super) underestimates: u64,
}

pub(super) fn judge(lives: &[Life]) -> Found {
    let mut found = Found {
        asked: lives.iter().filter(|life| life.answer != Answer::Failed).count() as u64,
        denied: lives.iter().filter(|life| life.answer == Answer::Denied).count() as u64,
        underestimates: lives.iter().filter(|life| excess(life) > 0).count() as u64,
        ..Found::default()
    };
    let mut changes: Vec<Vec<(u64, i64)>> = vec![Vec::new(); KEYS as usize];
    for life in lives {
        let Answer::Passed(time) = life.answer else { continue };
        let key = &mut changes[life.key as usize];
        for (from, until, units) in occupied(life, time) {
            key.extend([(from, units as i64), (until, -(units as i64))]);
        }
    }
    for mut changes in changes {
        // What leaves at an instant leaves before what comes.
        changes.sort_unstable();
        let mut units = 0;
        for (_, change) in changes {
            units += change;
            found.most = found.most.max(units);
            found.over += u64::from(units > LIMIT as i64);
        }
    }
    found
}

/// What the caller has underestimated.
fn excess(life: &Life) -> u64 {
    match life.end {
        End::Settled { actual, .. } | End::Unknown { actual, .. } => actual.saturating_sub(life.cost),
        End::None | End::Dropped(_) => 0,
    }
}

/// The times during which units were certainly held or charged, and how many of them, without underestimates.
fn occupied(life: &Life, time: u64) -> Vec<(u64, u64, u64)> {
    let (window, ttl) = (micros(WINDOW), micros(TTL));
    let mut spans = match life.end {
        _ if !life.is_hold => vec![(time, time + window, life.cost)],
        End::None => vec![(time, time + ttl + window, life.cost)],
        End::Dropped(at) => vec![(time, at + window, life.cost)],
        // The first instant at which the settlement may have been made begins the window.
        End::Settled { actual, from, .. } | End::Unknown { actual, from } => {
            vec![(time, from, life.cost), (from, from + window, actual.min(life.cost))]
        }
    };
    spans.retain(|(from, until, _)| from < until);
    spans
}

fn micros(duration: std::time::Duration) -> u64 {
    duration.as_micros() as u64
}

#[test]
fn the_judge_of_holds_detects_violations() {
    let (window, ttl) = (micros(WINDOW), micros(TTL));
    let limit = LIMIT;
    let hold = |time, cost, end| Life { key: 0, cost, is_hold: true, answer: Answer::Passed(time), end };
    let charge = |time, cost| Life { is_hold: false, ..hold(time, cost, End::None) };
    let over = |lives: &[Life]| judge(lives).over > 0;
    assert!(!over(&[charge(1, limit), charge(1 + window, limit)]));
    assert!(over(&[charge(1, limit), charge(window, 1)]));
    assert!(!over(&[hold(1, limit, End::None), charge(1 + ttl + window, limit)]), "charged when it expires");
    assert!(over(&[hold(1, limit, End::None), charge(ttl + window, 1)]));
    let settled = |actual| End::Settled { actual, from: 10, until: 12 };
    assert!(!over(&[hold(1, limit, settled(5)), charge(11, limit - 5)]), "the rest is free at once");
    assert!(over(&[hold(1, limit, settled(5)), charge(9, 1)]));
    assert!(over(&[hold(1, limit, settled(5)), charge(11, limit - 4)]));
    assert!(!over(&[hold(1, 5, settled(limit + 5)), charge(13, limit - 5)]), "an underestimate is the caller's");
    assert!(over(&[hold(1, limit, End::Dropped(10)), charge(9 + window, 1)]));
}
