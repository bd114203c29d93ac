//! Blocks: units that the store holds for this process; and the blocks of one lease: those that are spent, and those
//! that have to be settled.

use std::{collections::VecDeque, mem, time::Duration};

use tokio::time::Instant;

use super::size::{HORIZONS_PER_TTL, usual_horizon};
use crate::{check::open_hold::OpenHold, policy::Policy, verdict::Verdict};

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
    ended: Vec<FinishedBlock>,
    /// When the oldest of `ended` ended.
    pub(super) ended_since: Option<Instant>,
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
    pub(super) fn end(&mut self, ended: FinishedBlock, now: Instant) {
        self.ended.push(ended);
        self.ended_since.get_or_insert(now);
    }

    /// Takes the blocks that have to be settled.
    pub(super) fn take_ended(&mut self) -> Vec<FinishedBlock> {
        self.ended_since = None;
        mem::take(&mut self.ended)
    }

    /// Ends all blocks, and takes them.
    pub(super) fn give_back(&mut self, now: Instant) -> Vec<FinishedBlock> {
        while !self.open.is_empty() {
            self.end_front(now);
        }
        self.take_ended()
    }
}

/// A block that is spent.
#[derive(Debug)]
pub(super) struct Block {
    hold: OpenHold,
    units: u64,
    spent: u64,
    /// From when the store has held the block, in microseconds by the store's clock.
    held_from_us: u64,
    /// When the block was received.
    received: Instant,
    /// The first instant at which the block must not be spent any more, because its hold may have expired.
    end: Instant,
}

/// A block that is no longer spent. The store does not know yet what was spent.
#[derive(Debug)]
pub(super) struct FinishedBlock {
    pub(super) hold: OpenHold,
    pub(super) units: u64,
    pub(super) spent: u64,
    /// Whether the process does not know if the store has made the hold.
    pub(super) is_uncertain: bool,
}

impl FinishedBlock {
    /// A block that was requested. The process does not know if the store has made it.
    pub(super) fn uncertain(hold: OpenHold, units: u64) -> Self {
        Self { hold, units, spent: 0, is_uncertain: true }
    }
}

/// The time-to-live of blocks that last for a short time. The units of a killed or stopped process stay held for as
/// long as the time-to-live of its blocks.
const USUAL_TTL: Duration = Duration::from_secs(2);
/// The shortest time-to-live of holds with which blocks are taken.
pub(super) const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// The part of the time-to-live that is left unused, as a divisor. Clocks of computers differ by less than a
/// thousandth.
const MARGIN_DIVISOR: u32 = 100;

impl Block {
    /// A block whose hold was requested at `sent`. The hold lives from a later instant than that, which is
    /// `held_from_us` by the store's clock.
    pub(super) fn new(hold: OpenHold, units: u64, held_from_us: u64, sent: Instant, received: Instant) -> Self {
        let time = usable_time(&hold.policy);
        // An end that cannot be represented is far away.
        let end = sent.checked_add(time).unwrap_or(sent);
        Self { hold, units, spent: 0, held_from_us, received, end }
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        now < self.end
    }

    pub(super) fn end_at(&self) -> Instant {
        self.end
    }

    pub(super) fn received_at(&self) -> Instant {
        self.received
    }

    pub(super) fn held_from_us(&self) -> u64 {
        self.held_from_us
    }

    pub(super) fn left(&self) -> u64 {
        self.units - self.spent
    }

    /// Spends up to `units`. Returns the units that the block does not have.
    pub(super) fn spend(&mut self, units: u64) -> u64 {
        let spent = units.min(self.left());
        self.spent += spent;
        units - spent
    }

    pub(super) fn into_ended(self) -> FinishedBlock {
        FinishedBlock { hold: self.hold, units: self.units, spent: self.spent, is_uncertain: false }
    }
}

/// Whether the store has made the block that was requested.
pub(super) fn is_made(verdict: &Verdict) -> bool {
    verdict.allowed && verdict.outcomes.first().is_some_and(|outcome| outcome.fits)
}

/// The policy under which blocks are held: that of the lease, with a time-to-live of their own. A block is spent and
/// settled within half of it, unless the process is away.
pub(super) fn policy_of_blocks(policy: &Policy) -> Policy {
    let ttl = (usual_horizon(policy) * HORIZONS_PER_TTL).max(USUAL_TTL);
    let holds = policy.holds().filter(|holds| holds.ttl() > ttl);
    holds.map_or_else(|| policy.clone(), |holds| policy.clone().with_holds(holds.with_ttl(ttl)))
}

/// How long the units of a block may be spent. The time starts before its hold is requested.
fn usable_time(policy: &Policy) -> Duration {
    let ttl = policy.holds().map_or(Duration::ZERO, |holds| holds.ttl());
    ttl - ttl / MARGIN_DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hold, key::Key};

    /// A block of ten units that was requested and received at `sent`.
    fn block(held_from_us: u64, sent: Instant) -> Block {
        let policy = policy_of_blocks(&Policy::per_minute("p", 1_000).unwrap().with_lease(100));
        let hold = OpenHold::new(Key::from("k"), policy, hold::random_id());
        Block::new(hold, 10, held_from_us, sent, sent)
    }

    /// The clocks of the process and of the store differ by less than a thousandth.
    #[test]
    fn a_block_is_spent_until_a_hundredth_before_its_time_to_live() {
        let sent = Instant::now();
        let block = block(0, sent);
        let end = sent + Duration::from_millis(7_920);
        assert!(block.is_open(end - Duration::from_micros(1)) && !block.is_open(end));
    }

    #[test]
    fn units_of_several_blocks_are_held_from_the_latest_of_their_times() {
        let now = Instant::now();
        let mut blocks = Blocks::default();
        [200, 100, 300].into_iter().for_each(|held_from_us| blocks.add(block(held_from_us, now)));
        let spent = [4, 8, 2, 8].map(|units| blocks.spend(units, now).map(|spent| (spent.left, spent.held_from_us)));
        assert_eq!(spent, [Some((26, 200)), Some((18, 200)), Some((16, 100)), Some((8, 300))]);
    }
}
