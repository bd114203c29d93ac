//! The sliding window log as a step function of cumulative cost.
//!
//! F(t) is the cost admitted up to t, kept as one record `(t, F(t))` per request. With C the newest total, the cost
//! spent in `(now - window, now]` is `C - F(now - window)`. So `cost` fits if and only if
//! `C + cost - limit <= F(now - window)`, and the first record that reaches that target is the one that has to leave:
//! one ordered search gives the decision and the exact wait.

use std::collections::VecDeque;

use crate::{
    algorithm::counter::{CountReport, Counter},
    policy::Policy,
};

/// The admitted requests of one window.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlidingWindowLog {
    /// The cumulative cost before the first record.
    base: u64,
    /// The time of the first record. A copy, so that most checks need not load the records.
    oldest: u64,
    /// A copy of the last record.
    newest: Record,
    records: VecDeque<Record>,
    /// The highest limit under which the log was charged since it was last empty.
    highest_limit: u32,
}

/// One step of F.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// The time in microseconds, rounded up to the resolution.
    at: u64,
    /// The cumulative cost up to this time.
    total: u64,
}

impl SlidingWindowLog {
    /// The time, but never before the newest record: time does not run backwards for a key. Records may be ahead of the
    /// clock by less than one resolution, because their times are rounded up.
    fn monotonic(&self, policy: &Policy, now: u64) -> u64 {
        now.max((self.newest.at + 1).saturating_sub(policy.resolution_us()))
    }

    /// The cumulative cost including the first `count` records.
    fn total_after(&self, count: usize) -> u64 {
        count.checked_sub(1).map_or(self.base, |last| self.records[last].total)
    }

    /// Drops the first `count` records.
    fn drop_first(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.base = self.total_after(count);
        match count {
            _ if count == self.records.len() => self.records.clear(),
            1..=FEW => {
                for _ in 0..count {
                    self.records.pop_front();
                }
            }
            _ => drop(self.records.drain(..count)),
        }
        self.oldest = self.records.front().map_or(0, |record| record.at);
    }
}

/// For a key in steady use, at most this many records leave the window between two checks.
const FEW: usize = 8;

impl Counter for SlidingWindowLog {
    /// Number of records that have left the window.
    type Advanced = usize;

    fn advance_to(&self, policy: &Policy, now: u64) -> usize {
        let at = self.monotonic(policy, now);
        let expired = |record: &Record| record.at + policy.window_us() <= at;
        if self.oldest + policy.window_us() > at {
            return 0;
        }
        if expired(&self.newest) {
            return self.records.len();
        }
        // Scans a few records from the front, and searches all of them only if those have expired.
        match self.records.iter().take(FEW).take_while(|record| expired(record)).count() {
            FEW => self.records.partition_point(expired),
            few => few,
        }
    }

    fn fits(&self, &expired: &usize, policy: &Policy, _: u64, cost: u32) -> bool {
        self.newest.total - self.total_after(expired) + u64::from(cost) <= policy.limit().into()
    }

    fn charge(&mut self, expired: usize, policy: &Policy, now: u64, cost: u32) -> usize {
        let resolution = policy.resolution_us();
        let mut stamp = self.monotonic(policy, now);
        if resolution > 1 {
            stamp = stamp.next_multiple_of(resolution);
        }
        let (stamp, total) = (stamp.max(self.newest.at), self.newest.total + u64::from(cost));
        self.drop_first(expired);
        self.highest_limit =
            if self.records.is_empty() { policy.limit() } else { self.highest_limit.max(policy.limit()) };
        match self.records.back_mut() {
            Some(last) if self.newest.at == stamp => last.total = total,
            Some(_) => self.records.push_back(Record { at: stamp, total }),
            None => {
                self.records.push_back(Record { at: stamp, total });
                self.oldest = stamp;
            }
        }
        self.newest = Record { at: stamp, total };
        if policy.count_rejected() {
            // Records that lie more than the highest limit below the total affect no decision. A policy with a higher
            // limit may share the log.
            let highest = u64::from(self.highest_limit);
            self.drop_first(self.records.partition_point(|record| record.total + highest <= total));
        }
        // All remaining records are in the window.
        0
    }

    fn report(&self, &expired: &usize, policy: &Policy, now: u64, denied: Option<u32>) -> CountReport {
        let limit = u64::from(policy.limit());
        let (total, base) = (self.newest.total, self.total_after(expired));
        let leaves = |at: u64| at + policy.window_us() - now;
        let wait = |cost: u32| {
            let target = (total + u64::from(cost)).saturating_sub(limit);
            if target <= base {
                return 0;
            }
            let first = self.records.partition_point(|record| record.total < target);
            self.records.get(first).map_or(0, |record| leaves(record.at))
        };
        let spent = total - base;
        CountReport {
            available: u32::try_from(limit.saturating_sub(spent)).unwrap_or(0),
            retry_after: denied.map(wait),
            // The oldest record leaves next. If rejections were counted beyond the limit, more than one record has to
            // leave.
            next: match spent {
                0 => 0,
                _ if spent > limit => wait(1),
                _ if expired == 0 => leaves(self.oldest),
                _ => leaves(self.records[expired].at),
            },
            // The newest record leaves last.
            reset: if spent > 0 { leaves(self.newest.at) } else { 0 },
        }
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
        let coarse = exact.clone().with_resolution(Duration::from_millis(250)).unwrap();
        // The times of the coarse log are rounded up, so the first charge has a stamp of its own.
        for (policy, records) in [(exact, 500), (coarse, 5)] {
            let mut log = SlidingWindowLog::default();
            for step in 0..1_000 {
                let now = 1_000_000 + step / 2 * 2_000;
                log.charge(log.advance_to(&policy, now), &policy, now, 1);
            }
            assert_eq!((log.records.len(), log.newest.total), (records, 1_000), "{policy:?}");
        }
    }
}
