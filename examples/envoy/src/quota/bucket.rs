//! The blocks of one bucket of one Envoy.
//!
//! An Envoy spends the last block that it was sent. What it reports may also be of the block before, which it spent
//! until it received the last one. So two blocks are open, and the older one ends with a report that the Envoy has
//! made after it had received the last one.

use std::{mem, time::Duration};

use tokio::time::Instant;
use tollgate::limiter::SettleFuture;

use super::assignment::{Assignment, IDLE_TTL};
use super::grant::{Block, Grant};

/// The most buckets of one stream.
pub(super) const MOST_BUCKETS: usize = 1_024;
/// How long after an answer was sent a report shows that it has arrived.
const ARRIVAL: Duration = Duration::from_secs(1);
/// How often an Envoy usually reports, and the smallest demand of one that has any.
const INTERVAL: Duration = Duration::from_secs(5);
const SMALLEST: u64 = 8;
/// The shortest and the longest pause before a bucket without units gets some without a report.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// What an Envoy was told.
#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    Block(Box<Block>),
    AllowAll,
}

/// Whether the store is asked for a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Asked {
    No,
    ForReport,
    WithoutReport,
}

#[derive(Debug)]
pub(super) struct Bucket {
    last: Told,
    /// What the Envoy may still do as long as it has not received the last answer.
    before: Told,
    /// When the last answer was sent.
    sent: Instant,
    /// Whether a report has ended a block of this stream.
    has_ended: bool,
    /// The requests since a block was asked for, and when that was.
    requests: u64,
    since: Option<Instant>,
    /// The last report, and the last one with requests.
    reported: Instant,
    active: Instant,
    /// The units that the next block is to have; 0 for an Envoy without requests.
    wanted: u64,
    asked: Asked,
    pause: Duration,
    /// When the bucket gets units without a report.
    retry_at: Option<Instant>,
}

/// What is to be done for a bucket after a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    /// The last answer stays in force.
    Nothing,
    /// To ask the store for a block of this number of units.
    Ask(u64),
    Tell(Assignment),
}

/// A block that has ended, and what of it was not used.
pub(super) struct Ended {
    pub(super) settled: SettleFuture,
    pub(super) unused: u64,
}

impl Bucket {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            last: Told::Nothing,
            before: Told::Nothing,
            sent: now,
            has_ended: false,
            requests: 0,
            since: None,
            reported: now,
            active: now,
            wanted: 1,
            asked: Asked::No,
            pause: PAUSES.0,
            retry_at: None,
        }
    }

    /// Notes what an Envoy has spent since its last report, which has come after `arrived`. Returns the end of the
    /// block before the last one, if the Envoy spends it no longer.
    pub(super) fn report(&mut self, allowed: u64, denied: u64, arrived: Instant) -> Option<Ended> {
        let now = Instant::now();
        let requests = allowed.saturating_add(denied);
        self.reported = now;
        if requests > 0 {
            self.active = now;
        }
        self.requests = self.requests.saturating_add(requests);
        self.charge(allowed);
        if arrived < self.sent + ARRIVAL {
            return None;
        }
        match mem::take(&mut self.before) {
            Told::Block(block) => {
                let Block { hold, units, used, .. } = *block;
                self.has_ended = true;
                Some(Ended { settled: hold.settle(used), unused: units.saturating_sub(used) })
            }
            Told::Nothing | Told::AllowAll => None,
        }
    }

    /// Charges requests to the blocks, the older one first. What is above them passed because everything did, or is
    /// charged to the last one: an Envoy that spends more than it was sent pays for it. What was spent without any
    /// block is of one that an earlier stream has made, and which is charged in full.
    fn charge(&mut self, mut units: u64) {
        for told in [&mut self.before, &mut self.last] {
            if let Told::Block(block) = told {
                let part = units.min(block.units.saturating_sub(block.used));
                block.used += part;
                units -= part;
            }
        }
        match (&mut self.last, &mut self.before) {
            (Told::AllowAll, _) | (_, Told::AllowAll) => {}
            (Told::Block(block), _) | (Told::Nothing, Told::Block(block)) => {
                block.used = block.used.saturating_add(units);
            }
            (Told::Nothing, Told::Nothing) => {}
        }
    }

    /// What follows from the reports since the last answer. `patience` is how long the bucket may be without requests.
    pub(super) fn next(&mut self, patience: Duration) -> Next {
        // Two blocks are open, or the store is asked already.
        if self.asked != Asked::No || !matches!(self.before, Told::Nothing) {
            return Next::Nothing;
        }
        let now = Instant::now();
        let time = self.since.map_or(INTERVAL, |since| (now - since).clamp(ARRIVAL, INTERVAL));
        let requests = mem::take(&mut self.requests);
        self.since = Some(now);
        self.retry_at = None;
        self.wanted = match requests {
            0 if now - self.active >= patience => 0,
            0 => 1,
            // Room for more demand than before.
            _ => {
                let demand = u128::from(requests) * INTERVAL.as_millis() / time.as_millis();
                u64::try_from(2 * demand).unwrap_or(u64::MAX).max(SMALLEST)
            }
        };
        match (self.wanted, &self.last) {
            (1, Told::Block(block)) if block.ttl == IDLE_TTL && block.used < block.units => Next::Nothing,
            (0, Told::Nothing) => Next::Tell(Assignment::Abandon),
            // What it spends before it receives this is in its next report.
            (0, _) => Next::Tell(self.tell(Told::Nothing)),
            (units, _) => self.ask(units, Asked::ForReport),
        }
    }

    /// As [`next`](Self::next), when it is time for another try.
    pub(super) fn retry(&mut self) -> Next {
        match self.retry_at.take() {
            Some(_) if self.asked == Asked::No && matches!(self.before, Told::Nothing) => {
                self.ask(self.wanted, Asked::WithoutReport)
            }
            _ => Next::Nothing,
        }
    }

    fn ask(&mut self, units: u64, asked: Asked) -> Next {
        self.asked = asked;
        Next::Ask(units)
    }

    /// Notes what the store has given. Returns what to tell the Envoy: nothing if it has units of the last block.
    pub(super) fn on_grant(&mut self, grant: Grant) -> Option<Assignment> {
        let asked = mem::replace(&mut self.asked, Asked::No);
        if matches!(grant, Grant::Held(_) | Grant::Open) {
            self.pause = PAUSES.0;
        }
        match grant {
            Grant::Held(block) => Some(self.tell(Told::Block(block))),
            Grant::Open => Some(self.tell(Told::AllowAll)),
            Grant::Denied(wait) => self.without_units(asked, wait.unwrap_or_default()),
            Grant::Refused => self.without_units(asked, Duration::ZERO),
        }
    }

    fn without_units(&mut self, asked: Asked, wait: Duration) -> Option<Assignment> {
        // Without requests, the next report is soon enough.
        if self.wanted > 1 {
            self.retry_at = Some(Instant::now() + wait.clamp(self.pause, PAUSES.1));
            self.pause = (self.pause * 2).min(PAUSES.1);
        }
        let has_units = |block: &Block| block.used < block.units && self.sent.elapsed() < block.ttl / 2;
        match &self.last {
            Told::Block(block) if has_units(block) => None,
            // It refuses already.
            Told::Nothing if asked == Asked::WithoutReport => None,
            _ => Some(self.tell(Told::Nothing)),
        }
    }

    fn tell(&mut self, told: Told) -> Assignment {
        let assignment = match &told {
            Told::Nothing => Assignment::DenyAll,
            Told::AllowAll => Assignment::AllowAll,
            Told::Block(block) => Assignment::Block { units: block.units, ttl: block.ttl, made: block.made },
        };
        self.before = mem::replace(&mut self.last, told);
        self.sent = Instant::now();
        assignment
    }

    /// Notes that the last answer has left the process.
    pub(super) fn on_sent(&mut self) {
        self.sent = Instant::now();
    }

    /// Notes that the last block was too late to be sent, and that the Envoy was told to refuse everything instead.
    pub(super) fn on_late(&mut self) -> Option<Ended> {
        let last = mem::take(&mut self.last);
        let Told::Block(block) = last else {
            self.last = last;
            return None;
        };
        if self.wanted > 1 {
            self.retry_at = Some(Instant::now() + self.pause);
        }
        let Block { hold, units, .. } = *block;
        Some(Ended { settled: hold.settle(0), unused: units })
    }

    /// Whether the Envoy may have more than the two blocks of this stream, because it has just left another one.
    pub(super) fn is_new(&self) -> bool {
        !self.has_ended
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(super) fn reported(&self) -> Instant {
        self.reported
    }

    /// The open blocks.
    pub(super) fn into_blocks(self) -> impl Iterator<Item = Block> {
        [self.last, self.before].into_iter().filter_map(|told| match told {
            Told::Block(block) => Some(*block),
            Told::Nothing | Told::AllowAll => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;
    use tollgate::{Limiter, MemoryStore, Policy, policy::HoldSettings};

    use super::{super::assignment::TTL, *};

    const PATIENCE: Duration = Duration::from_secs(30);

    struct Store(Limiter, Policy);

    impl Store {
        fn new() -> Self {
            let policy = Policy::per_day("p", 1_000).unwrap().with_holds(HoldSettings::new());
            Self(Limiter::new(MemoryStore::new()), policy)
        }

        async fn left(&self) -> u64 {
            self.0.peek("key", &self.1).await.unwrap().available().unwrap()
        }

        async fn give(&self, bucket: &mut Bucket, next: Next) -> Option<Assignment> {
            let Next::Ask(units) = next else { panic!("{next:?}") };
            let hold = self.0.hold("key", &self.1, units).await.unwrap().into_result().unwrap();
            let ttl = if units > 1 { TTL } else { IDLE_TTL };
            let block = Block { hold, key: "key".into(), units, used: 0, ttl, made: Instant::now() };
            bucket.on_grant(Grant::Held(Box::new(block)))
        }
    }

    fn report(bucket: &mut Bucket, allowed: u64, denied: u64) -> Next {
        bucket.report(allowed, denied, Instant::now());
        bucket.next(PATIENCE)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_bucket_is_forgotten_without_an_open_block() {
        let (store, mut bucket) = (Store::new(), Bucket::new());
        let start = Instant::now();
        let next = report(&mut bucket, 0, 1);
        store.give(&mut bucket, next).await;
        let mut told = Vec::new();
        let mut asked = 0;
        while told.last() != Some(&Assignment::Abandon) {
            assert!(start.elapsed() < 4 * PATIENCE);
            advance(INTERVAL).await;
            if let Some(ended) = bucket.report(0, 0, Instant::now()) {
                ended.settled.await.unwrap();
            }
            match bucket.next(PATIENCE) {
                Next::Tell(assignment) => told.push(assignment),
                Next::Nothing => {
                    assert_eq!(store.left().await, 999, "an idle Envoy holds one unit");
                }
                next => {
                    asked += 1;
                    store.give(&mut bucket, next).await;
                }
            }
        }
        assert_eq!(asked, 1);
        // What the Envoy has spent before it refuses everything is in a report of its own.
        assert_eq!(told, [Assignment::DenyAll, Assignment::Abandon]);
        assert_eq!(start.elapsed(), PATIENCE + INTERVAL);
        assert_eq!(bucket.into_blocks().count(), 0);
        assert_eq!(store.left().await, 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_block_with_units_stays_in_force_while_there_are_no_others() {
        let (store, mut bucket) = (Store::new(), Bucket::new());
        let next = report(&mut bucket, 0, 1);
        store.give(&mut bucket, next).await;
        advance(INTERVAL).await;
        assert_eq!(report(&mut bucket, 3, 0), Next::Ask(SMALLEST));
        assert_eq!(bucket.on_grant(Grant::Denied(None)), None);
        // Its assignment ends before the report after this one.
        advance(INTERVAL).await;
        assert_eq!(report(&mut bucket, 3, 0), Next::Ask(SMALLEST));
        assert_eq!(bucket.on_grant(Grant::Denied(None)), Some(Assignment::DenyAll));
        advance(INTERVAL).await;
        let ended = bucket.report(0, 0, Instant::now()).unwrap();
        assert_eq!(ended.unused, 2);
        ended.settled.await.unwrap();
        assert_eq!(store.left().await, 994);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_without_a_report_become_rare_and_need_requests() {
        let mut bucket = Bucket::new();
        assert_eq!(report(&mut bucket, 0, 1), Next::Ask(SMALLEST));
        assert_eq!(bucket.on_grant(Grant::Denied(None)), Some(Assignment::DenyAll));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let due = bucket.retry_at().unwrap();
            pauses.push((due - Instant::now()).as_millis());
            advance(due - Instant::now()).await;
            assert_eq!(bucket.retry(), Next::Ask(SMALLEST));
            assert_eq!(bucket.on_grant(Grant::Refused), None, "the Envoy refuses already");
        }
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 5_000]);
        advance(INTERVAL).await;
        assert_eq!(report(&mut bucket, 0, 0), Next::Ask(1));
        assert_eq!(bucket.on_grant(Grant::Denied(None)), Some(Assignment::DenyAll));
        assert_eq!(bucket.retry_at(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_while_everything_does_is_charged_to_no_block() {
        let (store, mut bucket) = (Store::new(), Bucket::new());
        let next = report(&mut bucket, 0, 1);
        store.give(&mut bucket, next).await;
        advance(INTERVAL).await;
        assert_eq!(report(&mut bucket, 3, 0), Next::Ask(SMALLEST));
        assert_eq!(bucket.on_grant(Grant::Open), Some(Assignment::AllowAll));
        advance(INTERVAL).await;
        let ended = bucket.report(700, 0, Instant::now()).unwrap();
        ended.settled.await.unwrap();
        let Next::Ask(units) = bucket.next(PATIENCE) else { panic!("nothing is asked for") };
        assert_eq!(units, 1_400);
        store.give(&mut bucket, Next::Ask(100)).await;
        advance(INTERVAL).await;
        assert!(bucket.report(700, 0, Instant::now()).is_none());
        // The first block, and all of the second.
        for block in bucket.into_blocks() {
            block.hold.settle(block.used).await.unwrap();
        }
        assert_eq!(store.left().await, 1_000 - 8 - 100);
    }
}
