//! Judges the history of a key by sliding the window over it, as it comes in: memory stays flat however long it gets.

use std::collections::VecDeque;

/// An answer of the store, by the store's time.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub time_us: u64,
    pub cost: u64,
    /// `None`: allowed.
    pub retry_after_us: Option<u64>,
}

/// A check that was not answered: it may have been charged at any time in between.
#[derive(Clone, Copy, Debug)]
pub struct Unknown {
    pub from_us: u64,
    pub until_us: u64,
    pub cost: u64,
}

/// What was found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Findings {
    pub answers: u64,
    pub denials: u64,
    /// Law 1: admissions above the limit of the window that ends with them, and what the store may have forgotten.
    pub over: u64,
    /// Law 2: denials of what would have fit.
    pub false_denials: u64,
    /// Law 5: denials whose Retry-After was too early or too late.
    pub wrong_waits: u64,
    /// The most that was admitted in any window.
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

/// Judges one key.
#[derive(Debug)]
pub struct Judge {
    limit: u64,
    window_us: u64,
    unsettled: Vec<Answer>,
    unknown: Vec<Unknown>,
    /// Until when the last of them may count.
    unknown_until_us: u64,
    /// When what was admitted may have been forgotten later.
    forgotten: Vec<(u64, u64)>,
    /// What was admitted in the window, and its sum.
    admitted: VecDeque<(u64, u64)>,
    spent: u64,
    found: Findings,
}

impl Judge {
    pub fn new(limit: u64, window_us: u64) -> Self {
        let (unsettled, unknown, forgotten, admitted) = Default::default();
        let (unknown_until_us, spent, found) = Default::default();
        Self { limit, window_us, unsettled, unknown, unknown_until_us, forgotten, admitted, spent, found }
    }

    pub fn answer(&mut self, answer: Answer) {
        self.unsettled.push(answer);
    }

    pub fn unknown(&mut self, unknown: Unknown) {
        self.unknown_until_us = self.unknown_until_us.max(unknown.until_us + self.window_us);
        self.unknown.push(unknown);
    }

    /// The store may lose what it admits in that time.
    pub fn forgets(&mut self, from_us: u64, until_us: u64) {
        self.forgotten.push((from_us, until_us));
    }

    pub fn found(&self) -> Findings {
        self.found
    }

    /// Judges all that was before `time_us`. Nothing of then may come in later.
    pub fn settle(&mut self, time_us: u64) {
        self.unsettled.sort_by_key(|answer| answer.time_us);
        let count = self.unsettled.partition_point(|answer| answer.time_us < time_us);
        let settled: Vec<Answer> = self.unsettled.drain(..count).collect();
        for instant in settled.chunk_by(|one, other| one.time_us == other.time_us) {
            self.judge(instant);
        }
        self.unknown.retain(|unknown| unknown.until_us + self.window_us >= time_us);
    }

    /// All answers of one microsecond: which of them came first cannot be told.
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
        if self.spent > self.limit && self.spent - self.maybe_forgotten() > self.limit {
            self.found.over += allowed.len() as u64;
        }
        for answer in denied {
            let free = self.limit.saturating_sub(self.spent);
            self.found.false_denials += u64::from(answer.cost + self.maybe_spent(time, free) <= free);
            if self.unknown_until_us <= time && allowed.is_empty() {
                self.found.wrong_waits += u64::from(!self.tells_the_truth(answer));
            }
        }
    }

    /// What of the window the store may not know.
    fn maybe_forgotten(&self) -> u64 {
        let lost = |at: &u64| self.forgotten.iter().any(|(from, until)| (from..until).contains(&at));
        self.admitted.iter().filter(|(at, _)| lost(at)).map(|(_, cost)| cost).sum()
    }

    /// What unanswered checks may have spent in the window, counted until it is more than `enough`.
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

    /// Had nobody else come, the cost would have fit at Retry-After and not a microsecond earlier.
    fn tells_the_truth(&self, answer: &Answer) -> bool {
        let Some(wait) = answer.retry_after_us else { return true };
        let fits_at = |time: u64| {
            let left = self.admitted.iter().filter(|(at, _)| *at + self.window_us > time).map(|(_, cost)| cost);
            left.sum::<u64>() + answer.cost <= self.limit
        };
        fits_at(answer.time_us + wait) && !fits_at(answer.time_us + wait - 1)
    }
}
