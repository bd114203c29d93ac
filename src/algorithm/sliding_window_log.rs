//! The sliding window log as a step function of cumulative cost.
//!
//! F(t) is the cost admitted up to t, kept as one record `(t, F(t))` per request. With C the newest total, the cost
//! spent in `(now - window, now]` is `C - F(now - window)`. So `cost` fits if and only if
//! `C + cost - limit <= F(now - window)`, and the first record that reaches that target is the one that has to leave:
//! one ordered search gives the decision and the exact wait.

use crate::algorithm::record_queue::{Record, RecordQueue};
use crate::algorithm::{Counter, take};
use crate::{policy::Policy, verdict::Outcome};

/// The admitted requests of one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlidingWindowLog {
    /// The cumulative cost before the first record. Equals the newest total if there is no record.
    base: u64,
    /// The time of the first record. A copy, so that most checks need not load the records.
    oldest: u64,
    /// The last record, also after it has left the window. In place, so that a log of one record needs no allocation.
    newest: Record,
    /// All records before the last one.
    earlier: RecordQueue,
    /// The highest limit under which the log was charged since it was last empty.
    highest_limit: u64,
}

impl SlidingWindowLog {
    /// The time, but never before the newest record: time does not run backwards for a key. Records may be ahead of the
    /// clock by less than one resolution, because their times are rounded up.
    fn monotonic(&self, policy: &Policy, now: u64) -> u64 {
        now.max((self.newest.at + 1).saturating_sub(policy.resolution_us()))
    }

    fn is_empty(&self) -> bool {
        self.base == self.newest.total
    }

    /// Number of records.
    fn len(&self) -> usize {
        self.earlier.len() + usize::from(!self.is_empty())
    }

    /// A record of a log that is not empty.
    fn record(&self, index: usize) -> Record {
        self.earlier.get(index, self.newest).unwrap_or(self.newest)
    }

    /// The cumulative cost including the first `count` records.
    fn total_after(&self, count: usize) -> u64 {
        count.checked_sub(1).map_or(self.base, |last| self.record(last).total)
    }

    /// Adds a record, after the first `expired` records have left.
    #[inline(always)]
    fn add(&mut self, expired: usize, policy: &Policy, now: u64, cost: u64) {
        let resolution = policy.resolution_us();
        let mut stamp = self.monotonic(policy, now);
        if resolution > 1 {
            stamp = stamp.next_multiple_of(resolution);
        }
        if self.newest.total > FARTHEST {
            self.rebase();
        }
        let newest = Record { at: stamp.max(self.newest.at), total: self.newest.total + cost };
        self.drop_first(expired);
        if self.is_empty() {
            (self.oldest, self.highest_limit) = (newest.at, policy.limit());
        } else {
            self.highest_limit = self.highest_limit.max(policy.limit());
            self.earlier.widen_for(Record { at: self.oldest, total: self.base }, self.newest, newest);
            // Costs of the same time are one record.
            if self.newest.at != newest.at {
                self.earlier.push(self.newest);
            }
        }
        self.newest = newest;
    }

    /// Lets the oldest of more units than any limit leave: they affect no decision.
    fn leave_excess(&mut self) {
        self.leave(self.newest.total.saturating_sub(Policy::MAX_LIMIT));
    }

    /// Lets all units up to the cumulative cost `base`, before that of the newest record, leave.
    fn leave(&mut self, base: u64) {
        if base > self.base {
            self.drop_first(self.earlier.count(self.newest, |record| record.total <= base));
            self.base = base;
        }
    }

    /// Counts the cumulative cost from near the records on, instead of from the first charge of the key. The low halves
    /// stay.
    #[cold]
    fn rebase(&mut self) {
        let start = self.base & !u64::from(u32::MAX);
        self.base -= start;
        self.newest.total -= start;
        self.earlier.rebase(start);
    }

    /// Drops the first `count` records.
    fn drop_first(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.base = self.total_after(count);
        if count >= self.earlier.len() {
            self.earlier.clear();
        } else {
            self.earlier.drop_first(count);
        }
        self.oldest = self.record(0).at;
    }
}

/// The cumulative cost from which on a log counts anew. The sum with any limit does not overflow.
const FARTHEST: u64 = 1 << 62;

impl Counter for SlidingWindowLog {
    /// Number of records that have left the window.
    type Advanced = usize;

    #[inline(always)]
    fn advance_to(&self, policy: &Policy, now: u64) -> usize {
        let at = self.monotonic(policy, now);
        let expired = |record: Record| record.at + policy.window_us() <= at;
        if self.oldest + policy.window_us() > at {
            return 0;
        }
        if expired(self.newest) {
            return self.len();
        }
        self.earlier.count(self.newest, expired)
    }

    #[inline(always)]
    fn fits(&self, &expired: &usize, policy: &Policy, _: u64, cost: u64) -> bool {
        (self.newest.total - self.total_after(expired)).saturating_add(cost) <= policy.limit()
    }

    #[inline(always)]
    fn charge(&mut self, expired: usize, policy: &Policy, now: u64, cost: u64) -> usize {
        self.add(expired, policy, now, cost);
        if policy.denials_counted() {
            // Records that lie more than the highest limit below the total affect no decision. A policy with a higher
            // limit may share the log.
            let (newest, highest) = (self.newest, self.highest_limit);
            self.drop_first(self.earlier.count(newest, |record| record.total + highest <= newest.total));
            self.leave_excess();
        }
        // All remaining records are in the window.
        0
    }

    #[inline(always)]
    fn report(&self, &expired: &usize, policy: &Policy, now: u64, fits: bool, denied: Option<u64>) -> Outcome {
        let limit = policy.limit();
        let leaves = |at: u64| at + policy.window_us() - now;
        let wait = |cost: u64| self.wait(&expired, policy, now, cost);
        let spent = self.newest.total - self.total_after(expired);
        Outcome {
            fits,
            available: limit.saturating_sub(spent),
            retry_after_us: denied.map(wait),
            // The oldest record leaves next. If rejections were counted beyond the limit, more than one record has to
            // leave.
            next_us: match spent {
                0 => 0,
                _ if spent > limit => wait(1),
                _ if expired == 0 => leaves(self.oldest),
                _ => leaves(self.record(expired).at),
            },
            // The newest record leaves last.
            reset_us: if spent > 0 { leaves(self.newest.at) } else { 0 },
            ban_us: 0,
        }
    }

    #[inline(always)]
    fn wait(&self, &expired: &usize, policy: &Policy, now: u64, cost: u64) -> u64 {
        let target = (self.newest.total + cost).saturating_sub(policy.limit());
        if target <= self.total_after(expired) {
            return 0;
        }
        let leaves = |at: u64| at + policy.window_us() - now;
        // Mostly, the first record that leaves makes room.
        let first = self.record(expired);
        if first.total >= target {
            return leaves(first.at);
        }
        leaves(self.record(self.earlier.count(self.newest, |record| record.total < target)).at)
    }

    /// Unlike a counted denial, these units are no reason to forget older ones.
    fn settle(&mut self, expired: usize, policy: &Policy, now: u64, units: u64) {
        self.add(expired, policy, now, units);
        self.leave_excess();
    }

    /// The youngest units leave: the records behind the total that is left, and a part of the one that reaches it.
    fn credit(&mut self, expired: usize, _: &Policy, _: u64, units: u64) -> u64 {
        let mut spent = self.newest.total - self.total_after(expired);
        if spent == 0 {
            return 0;
        }
        self.drop_first(expired);
        let credited = take(&mut spent, units);
        if spent == 0 {
            *self = Self::default();
            return credited;
        }
        let total = self.newest.total - credited;
        let left = self.earlier.count(self.newest, |record| record.total < total);
        if let Some(last) = self.earlier.get(left, self.newest) {
            self.earlier.truncate(left);
            self.newest.at = last.at;
        }
        self.newest.total = total;
        credited
    }

    fn span(policy: &Policy, _: u64) -> u64 {
        policy.window_us() + policy.resolution_us()
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.newest.at + policy.window_us()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn charges_of_one_stamp_are_one_record() {
        let exact = Policy::per_second("p", 1_000).unwrap();
        let coarse = exact.clone().with_resolution(Duration::from_millis(250));
        // The times of the coarse log are rounded up, so the first charge has a stamp of its own.
        for (policy, records) in [(exact, 500), (coarse, 5)] {
            let mut log = SlidingWindowLog::default();
            for step in 0..1_000 {
                let now = 1_000_000 + step / 2 * 2_000;
                log.charge(log.advance_to(&policy, now), &policy, now, 1);
            }
            assert_eq!((log.len(), log.newest.total), (records, 1_000), "{policy:?}");
        }
    }

    /// One log has counted little so far, and the other one almost as much as a number can hold.
    #[test]
    fn a_log_that_has_counted_for_ages_decides_like_a_new_one() {
        for step in [1_u64, 1 << 20, 1 << 33] {
            let policy = Policy::new("p", Policy::MAX_LIMIT, Duration::from_micros(40 * step)).unwrap();
            let (mut new, mut old) = (SlidingWindowLog::default(), SlidingWindowLog::default());
            let start = FARTHEST - 5 * Policy::MAX_LIMIT;
            (old.base, old.newest.total) = (start, start);
            for number in 0..1_000 {
                let (now, cost) = (number * step, number * Policy::MAX_LIMIT / 30 % Policy::MAX_LIMIT + 1);
                let reports = [&mut new, &mut old].map(|log| {
                    let expired = log.advance_to(&policy, now);
                    if log.fits(&expired, &policy, now, cost) {
                        log.charge(expired, &policy, now, cost);
                    } else if number % 7 == 0 {
                        log.settle(expired, &policy, now, cost);
                    }
                    let expired = log.advance_to(&policy, now);
                    log.report(&expired, &policy, now, true, Some(cost.min(Policy::MAX_LIMIT)))
                });
                assert_eq!(reports[0], reports[1], "step {step}, {number}");
            }
            assert!(old.newest.total < FARTHEST, "the count starts anew");
        }
    }

    #[test]
    fn a_log_of_one_record_needs_no_allocation() {
        let policy = Policy::per_second("p", 10).unwrap();
        let mut log = SlidingWindowLog::default();
        for second in 0..3 {
            for cost in [1, 2] {
                let now = 1_000_000 * second;
                let expired = log.advance_to(&policy, now);
                log.charge(expired, &policy, now, cost);
                assert_eq!((log.len(), log.earlier.capacity()), (1, 0));
            }
        }
        log.charge(0, &policy, 2_000_001, 1);
        assert_eq!((log.len(), log.earlier.len()), (2, 1));
    }
}
