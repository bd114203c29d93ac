//! Checks the laws on the history of a key with a sliding window. The history is processed as it arrives, so memory
//! stays constant.

use std::collections::VecDeque;

/// A verdict of the store, stamped with the store's clock.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub time_us: u64,
    pub cost: u64,
    /// `None`: allowed.
    pub retry_after_us: Option<u64>,
}

/// A check without a reply: Redis may have charged the cost at any time between `from_us` and `until_us`.
#[derive(Clone, Copy, Debug)]
pub struct Unknown {
    pub from_us: u64,
    pub until_us: u64,
    pub cost: u64,
}

/// Counts of verdicts and of violated laws.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Findings {
    pub answers: u64,
    pub denials: u64,
    /// Law 1: admissions that exceed the limit of the window ending with them, less what the store may have lost.
    pub over: u64,
    /// Law 2: denials of a cost that would have fit.
    pub false_denials: u64,
    /// Law 5: denials whose Retry-After is too early or too late.
    pub wrong_waits: u64,
    /// The highest admitted cost of any window.
    pub most: u64,
}

impl Findings {
    pub fn add(&mut self, other: Self) {
        let Self { answers, denials, over, false_denials, wrong_waits, most } = other;
        self.answers += answers;
        self.denials += denials;
        self.over += over;
        self.false_denials += false_denials;
        self.wrong_waits += wrong_waits;
        self.most = self.most.max(most);
    }
}

/// Judge of one key.
#[derive(Debug)]
pub struct Judge {
    limit: u64,
    window_us: u64,
    unsettled: Vec<Answer>,
    unknown: Vec<Unknown>,
    /// The latest time at which an unanswered check may still count.
    unknown_until_us: u64,
    /// Periods whose admissions the store may have lost later.
    lost: Vec<(u64, u64)>,
    /// Admissions (time, cost) of the current window; `spent` is their sum.
    admitted: VecDeque<(u64, u64)>,
    spent: u64,
    found: Findings,
}

impl Judge {
    pub fn new(limit: u64, window_us: u64) -> Self {
        let (unsettled, unknown, lost, admitted) = Default::default();
        let (unknown_until_us, spent, found) = Default::default();
        Self { limit, window_us, unsettled, unknown, unknown_until_us, lost, admitted, spent, found }
    }

    pub fn answer(&mut self, answer: Answer) {
        self.unsettled.push(answer);
    }

    pub fn unknown(&mut self, unknown: Unknown) {
        self.unknown_until_us = self.unknown_until_us.max(unknown.until_us + self.window_us);
        self.unknown.push(unknown);
    }

    /// Declares that the store may lose what it admits in this period.
    pub fn may_lose(&mut self, from_us: u64, until_us: u64) {
        self.lost.push((from_us, until_us));
    }

    pub fn found(&self) -> Findings {
        self.found
    }

    /// Judges every verdict before `time_us`. The caller must not add earlier verdicts afterwards.
    pub fn settle(&mut self, time_us: u64) {
        self.unsettled.sort_by_key(|answer| answer.time_us);
        let count = self.unsettled.partition_point(|answer| answer.time_us < time_us);
        let settled: Vec<Answer> = self.unsettled.drain(..count).collect();
        for instant in settled.chunk_by(|one, other| one.time_us == other.time_us) {
            self.judge(instant);
        }
        self.unknown.retain(|unknown| unknown.until_us + self.window_us >= time_us);
    }

    /// Judges all verdicts of one microsecond together, because their order is unknown.
    fn judge(&mut self, instant: &[Answer]) {
        let time = instant[0].time_us;
        while let Some(&(at, cost)) = self.admitted.front()
            && at + self.window_us <= time
        {
            self.admitted.pop_front();
            self.spent -= cost;
        }
        let (allowed, denied): (Vec<&Answer>, Vec<&Answer>) =
            instant.iter().partition(|answer| answer.retry_after_us.is_none());
        for answer in &allowed {
            self.admitted.push_back((time, answer.cost));
            self.spent += answer.cost;
        }
        self.found.answers += instant.len() as u64;
        self.found.denials += denied.len() as u64;
        self.found.most = self.found.most.max(self.spent);
        if self.spent > self.limit && self.spent - self.maybe_lost() > self.limit {
            self.found.over += allowed.len() as u64;
        }
        for answer in denied {
            let free = self.limit.saturating_sub(self.spent);
            self.found.false_denials += u64::from(answer.cost + self.maybe_spent(time, free) <= free);
            if self.unknown_until_us <= time && allowed.is_empty() {
                self.found.wrong_waits += u64::from(!self.has_exact_retry_after(answer));
            }
        }
    }

    /// The cost in the current window that the store may have lost.
    fn maybe_lost(&self) -> u64 {
        let is_lost = |at: &u64| self.lost.iter().any(|(from, until)| (from..until).contains(&at));
        self.admitted.iter().filter(|(at, _)| is_lost(at)).map(|(_, cost)| cost).sum()
    }

    /// The cost that unanswered checks may have spent in the window; stops counting above `enough`.
    fn maybe_spent(&self, time: u64, enough: u64) -> u64 {
        let counts = |it: &&Unknown| it.from_us <= time && it.until_us + self.window_us > time;
        let mut sum = 0;
        for unknown in self.unknown.iter().filter(counts) {
            sum += unknown.cost;
            if sum > enough {
                break;
            }
        }
        sum
    }

    /// Whether the cost fits at Retry-After and not a microsecond earlier, given no further admissions.
    fn has_exact_retry_after(&self, answer: &Answer) -> bool {
        let Some(wait) = answer.retry_after_us else { return true };
        let fits_at = |time: u64| {
            let left = self.admitted.iter().filter(|(at, _)| *at + self.window_us > time).map(|(_, cost)| cost);
            left.sum::<u64>() + answer.cost <= self.limit
        };
        fits_at(answer.time_us + wait) && !fits_at(answer.time_us + wait - 1)
    }
}
