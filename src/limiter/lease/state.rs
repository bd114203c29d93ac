//! The lease of one key under one policy: its blocks, its waiters, and what its keeper has to do.

use std::{mem, sync::Arc, time::Duration};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::blocks::{Block, Blocks, FinishedBlock, is_made};
use super::meter::Demanded;
use super::size::{SHORTEST_HORIZON, Sizes};
use super::waiter::{Delivery, LastOutcome, Reply, Waiters};
use crate::{
    check::open_hold::OpenHold, error::Error, key::Key, observe::LeaseSpan, policy::Policy, runtime::stalls::Budget,
    verdict::Verdict,
};

/// The state of one lease, under a lock.
pub(super) struct Lease {
    pub(super) key: Key,
    pub(super) policy: Policy,
    /// Distinguishes this lease from earlier ones of the key.
    pub(super) number: u64,
    blocks: Blocks,
    waiters: Waiters,
    sizes: Sizes,
    standing: LastOutcome,
    /// Since when the keeper requests the block that it has not received.
    asking: Option<Budget>,
    /// The block that was requested and not received, and its units. It is released when the lease ends.
    requested: Option<(OpenHold, u64)>,
    /// Whether the keeper is to look whether to request a block.
    is_wanted: bool,
    /// The units left at which the next block is wanted.
    refill_below: u64,
    /// When a check was made last. Without checks for a while, the blocks are given back.
    used: Instant,
    /// When a check was last served from a block, or waited for one.
    served: Instant,
    wake: Arc<Notify>,
    /// Tells the observer, if there is one, when the lease ends.
    pub(super) span: Option<LeaseSpan>,
}

/// The result of a check on a lease.
#[derive(Debug)]
pub(super) enum Spent {
    Now(Verdict),
    /// The check waits for a block.
    Later(oneshot::Receiver<Reply>),
    /// The check goes to the store.
    Not,
    /// The check goes to the store, whose verdict this process need not remember: its key has no lease and is not hot.
    Cold,
}

/// What the keeper does next.
#[derive(Debug)]
pub(super) enum Step {
    Sleep(Instant),
    Actions(Actions),
}

#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) ended: Vec<FinishedBlock>,
    pub(super) deliveries: Vec<Delivery>,
    /// The units of the block to request.
    pub(super) ask: Option<u64>,
    /// The lease has ended, and its keeper ends too.
    pub(super) is_over: bool,
}

/// What leases have left when they end.
#[derive(Default)]
pub(super) struct Remains {
    pub(super) ended: Vec<FinishedBlock>,
    pub(super) deliveries: Vec<Delivery>,
    /// Dropped without a lock, because observers hear of it.
    pub(super) spans: Vec<LeaseSpan>,
}

impl Remains {
    /// Sends the waiters to the store. Returns the blocks to settle.
    pub(super) fn into_ended(self) -> Vec<FinishedBlock> {
        self.deliveries.into_iter().for_each(Delivery::send);
        self.ended
    }
}

/// A request for a block.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) hold: OpenHold,
    pub(super) units: u64,
    pub(super) sent: Instant,
}

impl Lease {
    /// Whether a call that has waited for a settlement would have no time to ask the store.
    pub(super) fn is_slow(&self) -> bool {
        self.sizes.is_slow()
    }

    pub(super) fn new(
        key: Key,
        policy: Policy,
        number: u64,
        standing: LastOutcome,
        asked: Demanded,
        deadline: Duration,
        now: Instant,
    ) -> Self {
        Self {
            blocks: Blocks::default(),
            waiters: Waiters::default(),
            sizes: Sizes::new(&policy, asked, deadline, now),
            standing,
            asking: None,
            requested: None,
            is_wanted: false,
            refill_below: 0,
            used: now,
            served: now,
            key,
            policy,
            number,
            wake: Arc::default(),
            span: None,
        }
    }

    pub(super) fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// Spends the units of a check, or lets it wait if a block is on its way or worth a request.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64, may_wait: bool, now: Instant) -> Spent {
        self.sizes.ask(cost);
        self.used = now;
        if self.waiters.is_empty()
            && let Some(verdict) = self.spend_now(cost, now)
        {
            self.served = now;
            return Spent::Now(verdict);
        }
        if may_wait { self.spend_later(cost, now) } else { Spent::Not }
    }

    #[inline]
    fn spend_now(&mut self, cost: u64, now: Instant) -> Option<Verdict> {
        let spending = self.blocks.spend(cost, now)?;
        if spending.left <= self.refill_below {
            self.want_block();
        }
        Some(self.standing.verdict(&self.policy, spending, now))
    }

    fn spend_later(&mut self, cost: u64, now: Instant) -> Spent {
        let is_coming = self.asking.is_some() || self.is_wanted;
        if cost > self.sizes.most || !(is_coming || self.next_units(cost, now) >= cost.max(1)) {
            return Spent::Not;
        }
        self.want_block();
        let receiver = if self.sizes.is_slow() { None } else { self.waiters.push(cost) };
        let Some(receiver) = receiver else { return Spent::Not };
        self.served = now;
        Spent::Later(receiver)
    }

    /// Remembers what the store said about a check that it has judged, and how long that took.
    pub(super) fn record(&mut self, standing: LastOutcome, took: Option<Duration>) {
        self.sizes.learned(standing.outcome.fits, standing.outcome.available, standing.at);
        if let Some(took) = took {
            self.sizes.answered(took);
        }
        self.standing = standing;
    }

    /// The units that can be spent.
    pub(super) fn left(&mut self, now: Instant) -> u64 {
        self.blocks.left(now)
    }

    /// Whether the keeper does not run: it would have ended the lease, or a request for a block, a while ago.
    pub(super) fn is_left(&self, now: Instant) -> bool {
        let is_forgotten = self.asking.is_some_and(|since| since.spent() / 2 >= self.sizes.deadline);
        is_forgotten || now >= self.over_at(now) + self.sizes.idle(now)
    }

    /// Ends all blocks, to give back what they have left to a check that was denied: the limit is near.
    pub(super) fn give_back(&mut self, now: Instant) -> Vec<FinishedBlock> {
        self.sizes.learned(false, 0, now);
        self.blocks.give_back(now)
    }

    /// Ends the lease.
    pub(super) fn close(mut self, now: Instant, remains: &mut Remains) {
        self.wake.notify_one();
        remains.ended.extend(self.blocks.give_back(now));
        remains.ended.extend(self.requested.map(|(hold, units)| FinishedBlock::uncertain(hold, units)));
        remains.deliveries.extend(self.waiters.reply_all(|| Reply::Ask));
        remains.spans.extend(self.span);
    }

    /// What the keeper does at `now`.
    pub(super) fn step(&mut self, now: Instant) -> Step {
        if self.waiters.head().is_none() && now >= self.over_at(now) {
            let ended = self.blocks.give_back(now);
            return Step::Actions(Actions { ended, is_over: true, ..Actions::default() });
        }
        let horizon = self.sizes.horizon(now);
        self.blocks.end_expired(now);
        let is_aged = self.aged_at(horizon).is_some_and(|at| now >= at);
        if is_aged {
            self.blocks.end_front(now);
            self.is_wanted = true;
        }
        let mut act = Actions::default();
        if mem::take(&mut self.is_wanted) {
            let head = self.waiters.head().unwrap_or(0);
            match self.next_units(head, now) {
                0 => {
                    self.refill_below = 0;
                    act.deliveries = self.waiters.reply_all(|| Reply::Ask);
                }
                units => {
                    self.asking = Some(Budget::of(self.sizes.deadline));
                    act.ask = Some(units);
                }
            }
        }
        if is_aged || act.ask.is_some() || self.blocks.ended_since.is_some_and(|since| now >= since + horizon) {
            act.ended = self.blocks.take_ended();
        }
        if act.ask.is_some() || !act.ended.is_empty() || !act.deliveries.is_empty() {
            return Step::Actions(act);
        }
        let ends = [
            Some(self.over_at(now)),
            self.aged_at(horizon),
            self.blocks.ended_since.map(|since| since + horizon),
            self.blocks.front().map(Block::end_at),
        ];
        let soonest = ends.into_iter().flatten().min().unwrap_or(now);
        Step::Sleep(soonest.max(now + SHORTEST_HORIZON))
    }

    /// When the lease ends if nothing changes: without checks, or if no block has paid for a while.
    fn over_at(&self, now: Instant) -> Instant {
        (self.used + self.sizes.idle(now)).min(self.served + self.sizes.longest_without_blocks())
    }

    /// When the block that is spent next has to be settled, although it is not used up.
    fn aged_at(&self, horizon: Duration) -> Option<Instant> {
        self.blocks.front().map(|block| block.received_at() + 2 * horizon)
    }

    /// Notes which block is on its way.
    pub(super) fn request(&mut self, hold: OpenHold, units: u64) {
        self.requested = Some((hold, units));
    }

    /// Receives a block, or learns that there is none. Serves the waiters.
    pub(super) fn receive(&mut self, asked: Asked, result: Result<Verdict, Error>, now: Instant) -> Vec<Delivery> {
        let Asked { hold, units, sent } = asked;
        let took = self.asking.take().map(|since| since.spent());
        self.requested = None;
        match result {
            Ok(verdict) => {
                let Some(outcome) = verdict.outcomes.first() else { return self.waiters.reply_all(|| Reply::Ask) };
                self.record(LastOutcome::new(*outcome, verdict.time_us, now), took);
                if !is_made(&verdict) {
                    self.refill_below = 0;
                    self.sizes.last_units = units / 2;
                    return self.waiters.reply_all(|| Reply::Ask);
                }
                self.blocks.add(Block::new(hold, units, verdict.time_us, sent, now));
                self.refill_below = units / 2;
                self.sizes.last_units = units;
                self.serve_waiters(now)
            }
            Err(error) => {
                if error.may_have_charged() {
                    // If the hold was made, or is made later, it is released. Otherwise this changes nothing.
                    self.blocks.end(FinishedBlock::uncertain(hold, units), now);
                }
                self.sizes.failed(now);
                self.refill_below = 0;
                let kind = error.kind();
                let failure = || Reply::Failed(Error::new(kind, error.message()).with_evidence(error.evidence()));
                self.waiters.reply_all(failure)
            }
        }
    }

    /// Learns that no block is requested, because the store may be behind. The waiters ask the store.
    pub(super) fn decline(&mut self, now: Instant) -> Vec<Delivery> {
        self.asking = None;
        self.refill_below = 0;
        self.sizes.failed(now);
        self.waiters.reply_all(|| Reply::Ask)
    }

    fn serve_waiters(&mut self, now: Instant) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let mut is_first = true;
        while let Some(cost) = self.waiters.head() {
            match self.spend_now(cost, now) {
                Some(verdict) => deliveries.extend(self.waiters.reply(Reply::Spent(verdict))),
                // The block was too small for it alone.
                None if is_first => deliveries.extend(self.waiters.reply(Reply::Ask)),
                None => {
                    self.want_block();
                    break;
                }
            }
            is_first = false;
        }
        deliveries
    }

    fn want_block(&mut self) {
        if self.asking.is_none() && !self.is_wanted {
            self.is_wanted = true;
            self.wake.notify_one();
        }
    }

    /// The units of the next block; 0 if no block is worth a request. `least` is what the first waiter needs.
    fn next_units(&mut self, least: u64, now: Instant) -> u64 {
        // One is spent, and the next one is there.
        if self.blocks.len() > 1 {
            return 0;
        }
        self.sizes.next(self.waiters.demanded(), least, self.standing.available(), now)
    }
}
