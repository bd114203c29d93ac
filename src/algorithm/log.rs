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
    records: VecDeque<Record>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    at: u64,
    total: u64,
}

impl Log {
    fn newest(&self) -> Record {
        self.records.back().copied().unwrap_or(Record { at: 0, total: self.settled })
    }

    /// Clock guard: time does not run backwards for a key. Stamps are rounded up by less than one resolution.
    fn guarded(&self, policy: &Policy, now: u64) -> u64 {
        now.max((self.newest().at + 1).saturating_sub(policy.resolution_us()))
    }

    /// How many records have left the window.
    fn expired(&self, policy: &Policy, now: u64) -> usize {
        let at = self.guarded(policy, now);
        // Most often none has.
        if self.records.front().is_none_or(|first| first.at + policy.window_us() > at) {
            return 0;
        }
        self.records.partition_point(|record| record.at + policy.window_us() <= at)
    }

    /// The cumulative cost up to and with the first `count` records.
    fn reached(&self, count: usize) -> u64 {
        count.checked_sub(1).map_or(self.settled, |last| self.records[last].total)
    }

    /// F(now - window).
    fn base(&self, policy: &Policy, now: u64) -> u64 {
        self.reached(self.expired(policy, now))
    }
}

impl Count for Log {
    fn fits(&self, policy: &Policy, now: u64, cost: u32) -> bool {
        self.newest().total - self.base(policy, now) + u64::from(cost) <= policy.limit().into()
    }

    fn charge(&mut self, policy: &Policy, now: u64, cost: u32) {
        let newest = self.newest();
        let stamp = self.guarded(policy, now).next_multiple_of(policy.resolution_us()).max(newest.at);
        let total = newest.total + u64::from(cost);
        let mut settled = self.expired(policy, now);
        match self.records.back_mut() {
            Some(last) if last.at == stamp => last.total = total,
            _ => self.records.push_back(Record { at: stamp, total }),
        }
        if policy.counts_rejected() {
            // What lies more than one limit back decides nothing.
            let limit = u64::from(policy.limit());
            settled = settled.max(self.records.partition_point(|record| record.total + limit <= total));
        }
        self.settled = self.reached(settled);
        self.records.drain(..settled);
    }

    fn report(&self, policy: &Policy, now: u64, refused: Option<u32>) -> Report {
        let (total, base) = (self.newest().total, self.base(policy, now));
        let spent = u32::try_from(total - base).unwrap_or(u32::MAX);
        let wait = |cost: u32| {
            let target = (total + u64::from(cost)).saturating_sub(policy.limit().into());
            if target <= base {
                return 0;
            }
            let leaving = self.records.partition_point(|record| record.total < target);
            self.records.get(leaving).map_or(0, |record| record.at + policy.window_us() - now)
        };
        Report::of(policy, policy.limit().saturating_sub(spent), refused, wait)
    }

    fn idle_at(&self, policy: &Policy) -> u64 {
        self.newest().at + policy.window_us()
    }
}
