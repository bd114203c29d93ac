//! The blocks of one lease: those that are spent, and those that have to be settled.

use std::{collections::VecDeque, mem};

use tokio::time::Instant;

use super::block::{Block, Ended};

/// Units that were spent from blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spending {
    /// What the blocks have left.
    pub(super) left: u64,
    /// From when the store has held all of the units, in microseconds by the store's clock.
    pub(super) held_from_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// In the order in which they are spent: one, and the next one when the first is half spent.
    open: VecDeque<Block>,
    ended: Vec<Ended>,
    /// When the oldest of `ended` ended.
    ended_since: Option<Instant>,
}

impl Blocks {
    /// The number of blocks that are not used up. Some may have expired.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The block that is spent next.
    pub(super) fn front(&self) -> Option<&Block> {
        self.open.front()
    }

    pub(super) fn add(&mut self, block: Block) {
        self.open.push_back(block);
    }

    /// Spends units, if the blocks have enough at `now`.
    #[inline]
    pub(super) fn spend(&mut self, units: u64, now: Instant) -> Option<Spending> {
        let left = self.left(now).checked_sub(units)?;
        let (mut missing, mut held_from_us) = (units, 0);
        while missing > 0
            && let Some(block) = self.open.front_mut()
        {
            held_from_us = held_from_us.max(block.held_from_us());
            missing = block.spend(missing);
            if block.left() == 0 {
                self.end_front(now);
            }
        }
        Some(Spending { left, held_from_us })
    }

    /// The units that can be spent at `now`.
    #[inline]
    pub(super) fn left(&mut self, now: Instant) -> u64 {
        self.end_expired(now);
        self.open.iter().map(Block::left).fold(0, u64::saturating_add)
    }

    /// Ends blocks that must not be spent any more.
    #[inline]
    pub(super) fn end_expired(&mut self, now: Instant) {
        while self.open.front().is_some_and(|block| !block.is_open(now)) {
            self.end_front(now);
        }
    }

    /// Ends the block that is spent next.
    pub(super) fn end_front(&mut self, now: Instant) {
        if let Some(block) = self.open.pop_front() {
            self.end(block.into_ended(), now);
        }
    }

    /// Adds a block that has to be settled.
    pub(super) fn end(&mut self, ended: Ended, now: Instant) {
        self.ended.push(ended);
        self.ended_since.get_or_insert(now);
    }

    /// When the oldest block ended that has to be settled.
    pub(super) fn ended_since(&self) -> Option<Instant> {
        self.ended_since
    }

    /// Takes the blocks that have to be settled.
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        self.ended_since = None;
        mem::take(&mut self.ended)
    }

    /// Ends all blocks, and takes them.
    pub(super) fn give_back(&mut self, now: Instant) -> Vec<Ended> {
        while !self.open.is_empty() {
            self.end_front(now);
        }
        self.take_ended()
    }
}
