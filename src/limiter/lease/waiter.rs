//! Checks that wait for a block that was requested, and what the store said last about their key, as an outcome of what
//! is spent since.

use std::collections::VecDeque;

use tokio::{sync::oneshot, time::Instant};

use super::{blocks::Spending, meter::Demanded};
use crate::verdict::{Outcome, Source, Verdict};
use crate::{clock::micros, error::Error, policy::Policy};

/// The answer to a check that waits for a block.
#[derive(Debug)]
pub(super) enum Reply {
    /// Its units were spent from a block.
    Spent(Verdict),
    /// The store has to be asked for this check by itself.
    Ask,
    /// The store gave no verdict on the block.
    Failed(Error),
}

#[derive(Debug)]
struct Waiter {
    cost: u64,
    reply: oneshot::Sender<Reply>,
}

/// The waiting checks of one key, first come, first served.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queue: VecDeque<Waiter>,
    /// The units of all.
    units: u64,
}

/// A reply that is to be sent when no lock is held.
#[derive(Debug)]
pub(super) struct Delivery(oneshot::Sender<Reply>, Reply);

/// The most checks that wait for the blocks of a key. Others ask the store, which refuses what it cannot answer in
/// time.
const MOST: usize = 10_000;

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// What all of them ask for.
    pub(super) fn demanded(&self) -> Demanded {
        Demanded { units: self.units, checks: self.queue.len() as u64 }
    }

    /// The cost of the first waiter whose caller is still there.
    pub(super) fn head(&mut self) -> Option<u64> {
        while self.queue.front().is_some_and(|waiter| waiter.reply.is_closed()) {
            self.pop();
        }
        self.queue.front().map(|waiter| waiter.cost)
    }

    /// Adds a waiter, unless there are too many.
    pub(super) fn push(&mut self, cost: u64) -> Option<oneshot::Receiver<Reply>> {
        if self.queue.len() >= MOST {
            return None;
        }
        let (reply, receiver) = oneshot::channel();
        self.queue.push_back(Waiter { cost, reply });
        self.units = self.units.saturating_add(cost);
        Some(receiver)
    }

    /// Takes the first waiter.
    pub(super) fn reply(&mut self, reply: Reply) -> Option<Delivery> {
        self.pop().map(|waiter| Delivery(waiter.reply, reply))
    }

    /// Takes all waiters.
    pub(super) fn reply_all(&mut self, reply: impl Fn() -> Reply) -> Vec<Delivery> {
        self.units = 0;
        self.queue.drain(..).map(|waiter| Delivery(waiter.reply, reply())).collect()
    }

    fn pop(&mut self) -> Option<Waiter> {
        let waiter = self.queue.pop_front()?;
        self.units = match self.queue.is_empty() {
            true => 0,
            false => self.units.saturating_sub(waiter.cost),
        };
        Some(waiter)
    }
}

impl Delivery {
    /// Sends the reply. A unit that was spent for a caller who goes away at this moment stays charged, as that of a
    /// check that is dropped.
    pub(super) fn send(self) {
        let _ = self.0.send(self.1);
    }
}

/// The last outcome of a key under a policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastOutcome {
    pub(super) outcome: Outcome,
    time_us: u64,
    /// When the verdict was received.
    pub(super) at: Instant,
}

impl LastOutcome {
    pub(super) fn new(outcome: Outcome, time_us: u64, at: Instant) -> Self {
        Self { outcome, time_us, at }
    }

    /// The units that the store had left. Units of this process's blocks are not in it.
    pub(super) fn available(&self) -> u64 {
        self.outcome.available
    }

    /// The verdict on units that were spent from blocks.
    ///
    /// Its time is an estimate that is never later than the store's clock, because an answer has always taken a while.
    /// It may be earlier, but not before the store held the units: otherwise units of two processes could seem to be in
    /// one window although they are not.
    #[inline]
    pub(super) fn verdict(&self, policy: &Policy, spending: Spending, now: Instant) -> Verdict {
        let Spending { left, held_from_us } = spending;
        let passed = micros(now.saturating_duration_since(self.at));
        let outcome = Outcome {
            fits: true,
            available: left.saturating_add(self.outcome.available).min(policy.capacity()),
            retry_after_us: None,
            next_us: self.outcome.next_us.saturating_sub(passed).max(1),
            reset_us: self.outcome.reset_us.saturating_sub(passed).max(1),
            ban_us: 0,
        };
        let time_us = self.time_us.saturating_add(passed).max(held_from_us);
        let mut verdict = Verdict::of_one(outcome, policy, time_us);
        verdict.source = Source::Lease;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// An answer that was on its way for longer is learned after the one with the block.
    #[tokio::test(start_paused = true)]
    async fn a_unit_is_not_dated_before_its_block_was_held() {
        let policy = Policy::per_minute("p", 10).unwrap();
        let outcome = Outcome { fits: true, available: 9, retry_after_us: None, next_us: 1, reset_us: 1, ban_us: 0 };
        let received = Instant::now();
        let standing = LastOutcome::new(outcome, 1_000, received);
        let time = |held_from_us, passed_us| {
            let now = received + Duration::from_micros(passed_us);
            standing.verdict(&policy, Spending { left: 0, held_from_us }, now).time_us
        };
        assert_eq!((time(500, 0), time(500, 700), time(1_500, 0), time(1_500, 700)), (1_000, 1_700, 1_500, 1_700));
    }
}
