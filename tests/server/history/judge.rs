//! Judges a history with a sliding window, key by key.

use crate::support::judge::{Answer, Findings, Judge, Unknown};
use crate::worker::{Entry, KEYS, LIMIT, WINDOW};

pub(crate) fn judge(history: &[Entry]) {
    let mut found = Findings::default();
    for key in 0..KEYS {
        let mut judge = Judge::new(LIMIT, u64::try_from(WINDOW.as_micros()).unwrap());
        for &Entry { time_us, cost, retry_after_us, .. } in history.iter().filter(|entry| entry.key == key) {
            judge.answer(Answer { time_us, cost, retry_after_us });
        }
        judge.settle(u64::MAX);
        found.add(judge.found());
    }
    let Findings { answers, denials, .. } = found;
    println!("{found:?}");
    assert_eq!(answers, history.len() as u64);
    assert_eq!((found.over, found.false_denials, found.wrong_waits), (0, 0, 0), "{found:?}");
    // How many of all depends on the speed of the machine: more are denied if the same number takes less time.
    let is_contended = denials > 1_000 && answers - denials > 1_000;
    assert!(is_contended, "{denials} of {answers} denied: the limit was not contended");
}

#[test]
fn the_judge_detects_violations_of_each_law() {
    let found = |answers: &[(u64, u64, Option<u64>)], unknown: &[Unknown]| {
        let mut judge = Judge::new(10, 100);
        unknown.iter().for_each(|unknown| judge.unknown(*unknown));
        for &(time_us, cost, retry_after_us) in answers {
            judge.answer(Answer { time_us, cost, retry_after_us });
        }
        judge.settle(u64::MAX);
        let Findings { over, false_denials, wrong_waits, .. } = judge.found();
        (over, false_denials, wrong_waits)
    };
    assert_eq!(found(&[(1000, 10, None), (1100, 10, None)], &[]), (0, 0, 0));
    assert_eq!(found(&[(1099, 1, None), (1000, 10, None)], &[]), (1, 0, 0));
    assert_eq!(found(&[(1000, 10, None), (1040, 5, Some(60))], &[]), (0, 0, 0));
    assert_eq!(found(&[(1000, 10, None), (1040, 5, Some(59))], &[]), (0, 0, 1));
    assert_eq!(found(&[(1000, 10, None), (1040, 5, Some(61))], &[]), (0, 0, 1));
    assert_eq!(found(&[(1000, 5, None), (1040, 5, Some(60))], &[]).1, 1);
    // A check without a reply explains a denial only while its charge may be in the window.
    let unknown = Unknown { from_us: 1020, until_us: 1030, cost: 1 };
    assert_eq!(found(&[(1000, 5, None), (1040, 5, Some(60))], &[unknown]), (0, 0, 0));
    assert_eq!(found(&[(1100, 5, None), (1140, 5, Some(60))], &[unknown]).1, 1);
}
