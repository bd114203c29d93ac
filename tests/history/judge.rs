//! Judges a history by sliding the window over it.

use crate::{
    support::judge::{Answer, Findings, Judge},
    worker::{Entry, KEYS, LIMIT, WINDOW},
};

pub(crate) fn judge(history: &[Entry]) {
    let mut found = Findings::default();
    for key in 0..KEYS {
        let mut judge = Judge::new(LIMIT.into(), u64::try_from(WINDOW.as_micros()).unwrap());
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
    assert!(
        denials * 10 > answers && denials * 10 < answers * 9,
        "{denials} of {answers} denied: the limit was not contended"
    );
}
