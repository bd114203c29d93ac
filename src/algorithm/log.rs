//! The sliding window log as a step function of cumulative cost.
//!
//! F(t) is the cost admitted up to t, kept as one record `(t, F(t))` per request. With C the newest total, the cost
//! spent in `(now - window, now]` is `C - F(now - window)`. So `cost` fits if and only if
//! `C + cost - limit <= F(now - window)`, and the first record that reaches that target is the one that has to leave:
//! one ordered search gives the decision and the exact wait.

use std::collections::VecDeque;

use super::{Count, Report};
use crate::policy::Policy;

#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    /// What came before the first record.
    settled: u64,
    /// When the first record was made, and …
    oldest: u64,
    /// … the last one, once more: so that most checks need not fetch the records from where they are.
    newest: Record,
    records: VecDeque<Record>,
    /// The highest limit that has charged since the log was last empty.
    highest: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    at: u64,
    total: u64,
}

impl Log {
    /// Clock guard: time does not run backwards for a key. Stamps are rounded up by less than one resolution.
    fn guarded(&self, policy: &Policy, now: u64) -> u64 {
        now.max((self.newest.at + 1).saturating_sub(policy.resolution_us()))
    }

    /// The cumulative cost up to and with the first `count` records.
    fn reached(&self, count: usize) -> u64 {
        count.checked_sub(1).map_or(self.settled, |last| self.records[last].total)
    }

    /// Drops the first `count` records.
    fn settle(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.settled = self.reached(count);
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

/// Of a key in steady use, no more than so many records have left the window since the last check.
const FEW: usize = 8;

impl Count for Log {
    /// How many records have left the window.
    type Rolled = usize;

    fn rolled(&self, policy: &Policy, now: u64) -> usize {
        let at = self.guarded(policy, now);
        let expired = |record: &Record| record.at + policy.window_us() <= at;
        if self.oldest + policy.window_us() > at {
            return 0;
        }
        if expired(&self.newest) {
            return self.records.len();
        }
        // One after the other from the front, and a search across all only where that does not end soon.
        match self.records.iter().take(FEW).take_while(|record| expired(record)).count() {
            FEW => self.records.partition_point(expired),
            few => few,
        }
    }

    fn fits(&self, &expired: &usize, policy: &Policy, _: u64, cost: u32) -> bool {
        self.newest.total - self.reached(expired) + u64::from(cost) <= policy.limit().into()
    }

    fn charge(&mut self, expired: usize, policy: &Policy, now: u64, cost: u32) -> usize {
        let resolution = policy.resolution_us();
        let mut stamp = self.guarded(policy, now);
        if resolution > 1 {
            stamp = stamp.next_multiple_of(resolution);
        }
        let (stamp, total) = (stamp.max(self.newest.at), self.newest.total + u64::from(cost));
        self.settle(expired);
        self.highest = if self.records.is_empty() { policy.limit() } else { self.highest.max(policy.limit()) };
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
            // What lies further back decides nothing: not even for a policy of a higher limit that shares the log.
            let highest = u64::from(self.highest);
            self.settle(self.records.partition_point(|record| record.total + highest <= total));
        }
        // All that are left are in the window.
        0
    }

    fn report(&self, &expired: &usize, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let limit = u64::from(policy.limit());
        let (total, base) = (self.newest.total, self.reached(expired));
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
        Report {
            available: u32::try_from(limit.saturating_sub(spent)).unwrap_or(0),
            retry_after: refused.map(wait),
            // What comes back next is the oldest record, unless refused requests have been counted beyond the limit …
            next: match spent {
                0 => 0,
                _ if spent > limit => wait(1),
                _ if expired == 0 => leaves(self.oldest),
                _ => leaves(self.records[expired].at),
            },
            // … and what comes back last is the newest.
            reset: if spent > 0 { leaves(self.newest.at) } else { 0 },
        }
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.newest.at + policy.window_us()
    }
}
