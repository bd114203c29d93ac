//! The start and the end of an outage, its causes, and when the next line about it is due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, StoreEvidence};
use crate::observe::effects::{EffectCounts, Effects, FailureEffect};

/// Time between two lines during an outage, in microseconds.
const PAUSE_US: u64 = 60_000_000;
/// Shortest time, in microseconds, from the end of an outage to the first line about the next outage, so that an
/// unsteady store does not fill a log.
const PAUSE_AFTER_US: u64 = 10_000_000;
/// An outage ends when the store answers and no check has failed for this time, in microseconds. One failure domain may
/// be down while others answer.
const QUIET_US: u64 = 1_000_000;

/// The outage of one store. [`is_on`](Self::is_on), which every answer calls, is one load.
#[derive(Debug, Default)]
pub(super) struct Outage {
    /// When the outage started; 0 without an outage.
    since_us: AtomicU64,
    /// When a check last got no verdict.
    latest_us: AtomicU64,
    /// When the store first answered after the latest failure; 0 before.
    back_us: AtomicU64,
    /// What checks got instead of a verdict. An effect is named once a line has reported the start of this outage.
    effects: Effects,
    /// When the next line is due.
    next_line_us: AtomicU64,
}

/// The length of an outage, and what checks got in it.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Length {
    pub(super) us: u64,
    pub(super) effects: EffectCounts,
}

impl Outage {
    /// Counts a check without a verdict, which may start an outage.
    pub(super) fn count(&self, effect: FailureEffect, now_us: u64) {
        // 0 means no outage.
        let now_us = now_us.max(1);
        let _ = self.since_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        self.latest_us.store(now_us, Ordering::Relaxed);
        self.back_us.store(0, Ordering::Relaxed);
        self.effects.count(effect);
    }

    /// What checks get instead of a verdict.
    #[cfg(feature = "tracing")]
    pub(super) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Counts a check without a verdict. Returns the length of the outage so far if a line is due, with 0 microseconds
    /// for the first line. A line is due at the start, for each effect that no line of this outage has named, and every
    /// minute.
    pub(super) fn failed(&self, effect: FailureEffect, now_us: u64) -> Option<Length> {
        self.count(effect, now_us);
        let now_us = now_us.max(1);
        let due_us = self.next_line_us.load(Ordering::Relaxed);
        let claim = || {
            self.next_line_us.compare_exchange(due_us, now_us + PAUSE_US, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let is_due = now_us >= due_us && claim();
        if !is_due && !self.effects.is_news(effect) {
            return None;
        }
        let since_us = if self.effects.are_named() { self.since_us.load(Ordering::Relaxed) } else { now_us };
        Some(Length { us: now_us.saturating_sub(since_us), effects: self.effects.name() })
    }

    /// The length of the outage so far, for a line about a new cause. `None` if no line has reported the outage.
    pub(super) fn so_far(&self, now_us: u64) -> Option<Length> {
        let since_us = self.since_us.load(Ordering::Relaxed);
        // A line with 0 microseconds would be the first one of the outage.
        let us = now_us.saturating_sub(since_us).max(1);
        (since_us != 0 && self.effects.are_named()).then(|| Length { us, effects: self.effects.name() })
    }

    /// Whether there is an outage, which an answer may end.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.since_us.load(Ordering::Relaxed) != 0
    }

    /// Records an answer. Returns the length of the outage if this answer ends it and its start was reported.
    pub(super) fn answered(&self, now_us: u64) -> Option<Length> {
        let _ = self.back_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        if now_us.saturating_sub(self.latest_us.load(Ordering::Relaxed)) < QUIET_US {
            return None;
        }
        let since_us = self.since_us.swap(0, Ordering::Relaxed);
        if since_us == 0 {
            return None;
        }
        let reported = self.effects.are_named();
        let effects = self.effects.take();
        if reported {
            self.next_line_us.store(now_us + PAUSE_AFTER_US, Ordering::Relaxed);
        }
        let back_us = self.back_us.load(Ordering::Relaxed);
        reported.then_some(Length { us: back_us.saturating_sub(since_us), effects })
    }
}

/// The causes of the present outage, or of the last one. No line is written under the lock, because a log may be slow
/// or call the limiter itself.
#[derive(Debug, Default)]
pub(super) struct Causes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The cause when the store was last asked. An open breaker does not replace this cause, because the store is not
    /// asked then.
    latest: Option<Error>,
    /// The causes that lines about this outage have named.
    reported: Vec<(ErrorKind, String)>,
}

/// The most causes of one outage that are reported at once, so that texts that differ each time do not fill a log.
const MOST: usize = 8;

impl Causes {
    /// Remembers why a check had no verdict. Returns the kind of the latest cause, and `true` for a cause that no line
    /// has named, if lines about this outage have named others. One caller gets `true`.
    pub(super) fn note(&self, error: &Error) -> (ErrorKind, bool) {
        let was_asked = error.evidence() != StoreEvidence::NotSent;
        let same = |known: &Error| known.kind() == error.kind() && known.message() == error.message();
        let mut known = self.known();
        if known.latest.is_none() || was_asked && !known.latest.as_ref().is_some_and(same) {
            known.latest = Some(error.clone());
        }
        // That the store is silent is how most outages begin and end, so it is no news.
        let may_be_news = was_asked && !error.is_late() && !known.reported.is_empty();
        let is_news = may_be_news && known.name(error);
        (known.latest.as_ref().map_or(error.kind(), Error::kind), is_news)
    }

    /// The latest cause, which a line is about to name.
    pub(super) fn report(&self) -> Option<Error> {
        let mut known = self.known();
        let latest = known.latest.clone()?;
        known.name(&latest);
        Some(latest)
    }

    /// Forgets what lines have named, because the outage has ended.
    pub(super) fn end_outage(&self) {
        self.known().reported.clear();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic under the lock leaves valid causes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Notes that a line names a cause. Returns whether none has named it before.
    fn name(&mut self, error: &Error) -> bool {
        let is_named = self.reported.iter().any(|(kind, text)| *kind == error.kind() && text == error.message());
        let is_new = !is_named && self.reported.len() < MOST;
        if is_new {
            self.reported.push((error.kind(), error.message().to_owned()));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use FailureEffect::{Pass, Refusal, Share};

    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn an_outage_is_reported_at_its_start_each_minute_and_at_its_end() {
        let outage = Outage::default();
        let start = 1_000 * SECOND;
        let reported: Vec<u64> =
            (0..=150 * 10).filter(|tenth| outage.failed(Pass, start + tenth * SECOND / 10).is_some()).collect();
        assert_eq!(reported, [0, 600, 1_200]);
        let end = start + 150 * SECOND;
        // Other failure domains may answer meanwhile.
        assert_eq!(outage.answered(end + SECOND / 2), None);
        assert!(outage.is_on());
        let Length { us, effects } = outage.answered(end + SECOND).unwrap();
        assert_eq!((us, effects.sum()), (150 * SECOND + SECOND / 2, 1_501));
        assert!(!outage.is_on());
        assert_eq!(outage.answered(end + 2 * SECOND), None);
    }

    #[test]
    fn an_unsteady_store_has_at_most_two_lines_in_ten_seconds() {
        let outage = Outage::default();
        let (mut begun, mut ended) = (0, 0);
        for second in 0..100 {
            let now = (1_000 + 2 * second) * SECOND;
            begun += u64::from(outage.failed(Pass, now).is_some());
            ended += u64::from(outage.answered(now + SECOND + 1).is_some());
        }
        assert_eq!(begun, ended);
        assert!((10..=20).contains(&begun), "{begun}");
    }

    /// What the line says about a check, if one is due.
    fn line(outage: &Outage, effect: FailureEffect, second: u64) -> Option<String> {
        outage.failed(effect, second * SECOND).map(|length| length.effects.to_string())
    }

    #[test]
    fn a_new_effect_is_reported_at_once_and_later_lines_name_each_effect_with_its_count() {
        let outage = Outage::default();
        assert_eq!(line(&outage, Refusal, 1_000).unwrap(), "1 refused with 503 (fail_closed)");
        assert_eq!(line(&outage, Refusal, 1_001), None);
        assert_eq!(
            line(&outage, Pass, 1_002).unwrap(),
            "1 passed without a limit (fail_open), 2 refused with 503 (fail_closed)"
        );
        for _ in 0..224 {
            assert_eq!(line(&outage, Pass, 1_003), None, "an effect is news once");
        }
        assert_eq!(
            line(&outage, Share, 1_004).unwrap(),
            "225 passed without a limit (fail_open), 2 refused with 503 (fail_closed), 1 judged by this instance's \
             share (fail_local)"
        );
        // News does not delay the line of the minute.
        assert_eq!(line(&outage, Refusal, 1_059), None);
        assert!(line(&outage, Refusal, 1_060).unwrap().contains("4 refused"));
        let end = outage.answered(1_062 * SECOND).unwrap().effects;
        assert_eq!(
            end.to_string(),
            "225 passed without a limit (fail_open), 4 refused with 503 (fail_closed), 1 judged by this instance's \
             share (fail_local)"
        );
    }

    #[test]
    fn the_next_outage_counts_its_effects_anew_and_its_first_line_names_those_before_it() {
        let outage = Outage::default();
        line(&outage, Refusal, 1_000).unwrap();
        outage.answered(1_002 * SECOND).unwrap();
        // Soon after an outage, the first line of the next one waits, also if it would have news.
        assert_eq!(line(&outage, Pass, 1_003), None);
        assert_eq!(line(&outage, Refusal, 1_004), None);
        assert_eq!(
            line(&outage, Refusal, 1_012).unwrap(),
            "1 passed without a limit (fail_open), 2 refused with 503 (fail_closed)"
        );
    }

    /// Silence and an open breaker say nothing new about an outage.
    #[test]
    fn a_cause_that_no_line_has_named_is_news_once_in_each_outage() {
        let unavailable = |text| Error::new(ErrorKind::Unavailable, text);
        let (refused, reset, late) =
            (unavailable("refused"), unavailable("reset"), Error::new(ErrorKind::Deadline, "late"));
        let unsent = unavailable("the breaker is open").with_evidence(StoreEvidence::NotSent);
        let causes = Causes::default();
        for outage in 1..=2 {
            assert_eq!(causes.note(&refused), (ErrorKind::Unavailable, false), "no line has named another");
            assert_eq!(causes.report().unwrap().message(), "refused");
            for (error, latest, is_news) in [
                (&late, ErrorKind::Deadline, false),
                (&unsent, ErrorKind::Deadline, false),
                (&reset, ErrorKind::Unavailable, true),
                (&reset, ErrorKind::Unavailable, false),
                (&refused, ErrorKind::Unavailable, false),
            ] {
                assert_eq!(causes.note(error), (latest, is_news), "outage {outage}: {error}");
            }
            causes.end_outage();
        }
    }

    #[test]
    fn of_ever_more_causes_of_an_outage_the_first_eight_are_news() {
        let causes = Causes::default();
        let cause = |number: u32| Error::new(ErrorKind::Unavailable, format!("cause {number}"));
        causes.note(&cause(0));
        causes.report().unwrap();
        let news: Vec<u32> = (1..20).filter(|number| causes.note(&cause(*number)).1).collect();
        assert_eq!(news, [1, 2, 3, 4, 5, 6, 7], "seven after the first");
        assert_eq!(causes.report().unwrap().message(), "cause 19");
    }
}
