//! Judges a history by sliding the window over it.

use crate::worker::{Entry, KEYS, LIMIT, WINDOW};

pub(crate) fn judge(history: &[Entry]) {
    let mut denials = 0;
    for key in 0..KEYS {
        let mut entries: Vec<Entry> = history.iter().filter(|entry| entry.key == key).copied().collect();
        entries.sort_by_key(|entry| entry.time_us);
        let admitted = Admitted::new(&entries);
        for entry in &entries {
            match entry.retry_after_us {
                None => never_over(&admitted, entry),
                Some(wait) => {
                    denials += 1;
                    never_wrongly_denied(&admitted, entry);
                    tells_the_truth(&admitted, entry, wait);
                }
            }
        }
    }
    let total = history.len();
    println!("{total} requests, {denials} denied, 0 over, 0 wrongly denied");
    assert!(
        denials * 10 > total && denials * 10 < total * 9,
        "{denials} of {total} denied: the limit was not contended"
    );
}

/// Law 1: in every window (t - W, t], admitted cost <= limit.
fn never_over(admitted: &Admitted, entry: &Entry) {
    let spent = admitted.until(entry.time_us) - admitted.until(entry.time_us - window());
    assert!(spent <= limit(), "{spent} admitted in the window that ends with {entry:?}");
}

/// Law 2: a denied cost did not fit. What was admitted in the same microsecond may have come before.
fn never_wrongly_denied(admitted: &Admitted, entry: &Entry) {
    let spent = admitted.until(entry.time_us) - admitted.until(entry.time_us - window());
    assert!(spent + entry.cost > limit(), "only {spent} were spent at {entry:?}");
}

/// Law 5: had nobody else come, the cost would have fit at Retry-After and not a microsecond earlier.
fn tells_the_truth(admitted: &Admitted, entry: &Entry, wait: u64) {
    if admitted.any_at(entry.time_us) {
        // Which of them came before the denial cannot be told.
        return;
    }
    let spent_at = |time: u64| admitted.until(entry.time_us) - admitted.until(time - window());
    assert!(spent_at(entry.time_us + wait) + entry.cost <= limit(), "too early: {entry:?}");
    assert!(spent_at(entry.time_us + wait - 1) + entry.cost > limit(), "too late: {entry:?}");
}

fn limit() -> u64 {
    LIMIT.into()
}

fn window() -> u64 {
    u64::try_from(WINDOW.as_micros()).unwrap()
}

/// Cumulative admitted cost by time.
struct Admitted(Vec<(u64, u64)>);

impl Admitted {
    fn new(entries: &[Entry]) -> Self {
        let mut total = 0;
        let admitted = entries.iter().filter(|entry| entry.retry_after_us.is_none());
        Self(
            admitted
                .map(|entry| {
                    total += entry.cost;
                    (entry.time_us, total)
                })
                .collect(),
        )
    }

    fn until(&self, time: u64) -> u64 {
        let count = self.0.partition_point(|(at, _)| *at <= time);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }

    fn any_at(&self, time: u64) -> bool {
        self.0.binary_search_by_key(&time, |(at, _)| *at).is_ok()
    }
}
