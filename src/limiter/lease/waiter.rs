//! Checks that wait for a block that was requested.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use crate::{error::Error, verdict::Verdict};

/// What a waiting check gets.
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

    pub(super) fn units(&self) -> u64 {
        self.units
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
