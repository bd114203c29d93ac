//! Blocks: units that the store holds for this process.

use std::time::Duration;

use tokio::time::Instant;

use crate::{hold::OpenHold, policy::Policy};

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
pub(super) struct Ended {
    pub(super) hold: OpenHold,
    pub(super) units: u64,
    pub(super) spent: u64,
    /// Whether the process does not know if the store has made the hold.
    pub(super) is_uncertain: bool,
}

/// The longest time-to-live of a block: the longest time for which the units of a killed or stopped process stay held.
/// A block is spent and settled within a tenth of a second, unless the process is away.
const LONGEST_TTL: Duration = Duration::from_secs(2);
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

    pub(super) fn is_touched(&self) -> bool {
        self.spent > 0
    }

    /// Spends up to `units`. Returns the units that the block does not have.
    pub(super) fn spend(&mut self, units: u64) -> u64 {
        let spent = units.min(self.left());
        self.spent += spent;
        units - spent
    }

    pub(super) fn into_ended(self) -> Ended {
        Ended { hold: self.hold, units: self.units, spent: self.spent, is_uncertain: false }
    }
}

/// The policy under which blocks are held: that of the lease, with a time-to-live of their own.
pub(super) fn policy_of_blocks(policy: &Policy) -> Policy {
    let holds = policy.holds().filter(|holds| holds.ttl() > LONGEST_TTL);
    holds.map_or_else(|| policy.clone(), |holds| policy.clone().with_holds(holds.with_ttl(LONGEST_TTL)))
}

/// How long the units of a block may be spent. The time starts before its hold is requested.
fn usable_time(policy: &Policy) -> Duration {
    let ttl = policy.holds().map_or(Duration::ZERO, |holds| holds.ttl());
    ttl - ttl / MARGIN_DIVISOR
}
