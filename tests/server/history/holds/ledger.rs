//! What each key must have spent at the end.

use std::ops::RangeInclusive;

use super::record::{Answer, End, Life};
use super::worker::KEYS;

/// The units that each key has spent: exactly, except for calls without an answer.
pub(super) fn accounts(lives: &[Life]) -> Vec<RangeInclusive<u64>> {
    let mut accounts = vec![(0, 0); KEYS as usize];
    for life in lives {
        let (least, most) = match (life.answer, life.end) {
            (Answer::Denied | Answer::Failed, _) => (0, 0),
            (Answer::Unknown, _) => (0, life.cost),
            (Answer::Passed(_), End::Settled { actual, .. }) => (actual, actual),
            (Answer::Passed(_), End::Unknown { actual, .. }) => (actual.min(life.cost), actual.max(life.cost)),
            (Answer::Passed(_), End::None | End::Dropped(_)) => (life.cost, life.cost),
        };
        let account = &mut accounts[life.key as usize];
        *account = (account.0 + least, account.1 + most);
    }
    accounts.into_iter().map(|(least, most)| least..=most).collect()
}
