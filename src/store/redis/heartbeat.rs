//! How many instances there are: each one touches a sorted set now and then, on the back of its traffic.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::RedisResult;
use tokio::runtime::Handle;

use super::{connection::Connection, error, shared::Shared};
use crate::{
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind},
    observe::{Once, Warning},
};

/// Beats only once somebody has asked, and only after a check that Redis has answered: a Redis that is away gets none.
#[derive(Debug)]
pub(super) struct Heartbeat {
    id: u64,
    wanted: AtomicBool,
    /// 0 is not known yet.
    instances: AtomicU32,
    estimate: Mutex<Estimate>,
    beats: AtomicU32,
    due_us: AtomicU64,
    warned: Once,
}

/// The first beats are sooner, doubling from here: instances that start together should soon know of each other.
const FIRST: Duration = Duration::from_millis(125);
const EVERY: Duration = Duration::from_secs(5);
/// An instance counts for so long after its last traffic. Too long makes shares smaller than they might be, too short
/// makes the sum of all shares larger than the limit.
const LIFETIME_MS: u64 = 60_000;

/// How many instances there are, from what Redis has counted.
///
/// A higher count is believed at once. A lower one is believed when all counts were lower for a lifetime: a Redis that
/// has lost its data counts the instances anew, one after the other, and each of them would take a larger share.
#[derive(Debug, Default)]
struct Estimate {
    number: u32,
    lower: Option<Lower>,
}

/// Counts that are lower than the estimate, one after the other.
#[derive(Debug)]
struct Lower {
    highest: u32,
    for_us: u64,
    last_us: u64,
}

/// The most that the time between two lower counts adds to the lifetime: during an outage nothing was counted.
const BETWEEN: Duration = EVERY.saturating_mul(2);

impl Estimate {
    /// Takes a count at `now_us` and returns the number that holds from now on.
    fn learn(&mut self, count: u32, now_us: u64) -> u32 {
        if count >= self.number {
            *self = Self { number: count, lower: None };
            return count;
        }
        let lower = self.lower.get_or_insert(Lower { highest: count, for_us: 0, last_us: now_us });
        lower.highest = lower.highest.max(count);
        lower.for_us += now_us.saturating_sub(lower.last_us).min(micros(BETWEEN));
        lower.last_us = now_us;
        if lower.for_us >= LIFETIME_MS * 1_000 {
            *self = Self { number: lower.highest, lower: None };
        }
        self.number
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            // The standard library's keys are random, and every state has others.
            id: RandomState::new().hash_one(std::process::id()),
            wanted: AtomicBool::new(false),
            instances: AtomicU32::new(0),
            estimate: Mutex::default(),
            beats: AtomicU32::new(0),
            due_us: AtomicU64::new(0),
            warned: Once::default(),
        }
    }
}

impl Heartbeat {
    /// The number since the last beat that Redis answered.
    pub(super) fn instances(&self) -> Option<u32> {
        self.wanted.store(true, Ordering::Relaxed);
        Some(self.instances.load(Ordering::Relaxed)).filter(|&instances| instances > 0)
    }

    /// Whether it is time, and nobody else has noticed.
    fn is_due(&self) -> bool {
        if !self.wanted.load(Ordering::Relaxed) {
            return false;
        }
        let (now, due) = (SystemClock.now_us(), self.due_us.load(Ordering::Relaxed));
        if now < due {
            return false;
        }
        let pause = FIRST.saturating_mul(1 << self.beats.load(Ordering::Relaxed).min(10)).min(EVERY);
        let next = now.saturating_add(micros(pause));
        self.due_us.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Learns what Redis has counted.
    fn counted(&self, count: u32) {
        // No invariant spans a panic.
        let mut estimate = self.estimate.lock().unwrap_or_else(PoisonError::into_inner);
        self.instances.store(estimate.learn(count, SystemClock.now_us()), Ordering::Relaxed);
        self.beats.fetch_add(1, Ordering::Relaxed);
    }
}

/// Beats, if it is time, in a task of its own: the check has its answer already.
pub(super) fn touch(shared: &Arc<Shared>) {
    if shared.heartbeat.is_due()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(beat(Arc::clone(shared)));
    }
}

/// A beat that fails leaves everything as it is: the next one may do better.
async fn beat(shared: Arc<Shared>) {
    let Ok(link) = shared.link() else { return };
    let key = format!("{}instances", shared.prefix);
    let Ok(mut connection) = shared.connect(&link, shared.slot_of(key.as_bytes())).await else { return };
    match count(&mut connection, &key, shared.heartbeat.id).await {
        Ok(count) => shared.heartbeat.counted(count),
        Err(error) => refused(&shared, key, &error::convert(&error, &shared.source.passwords())),
    }
}

/// Says that this instance is there, and counts all that are.
async fn count(connection: &mut Connection, key: &str, id: u64) -> RedisResult<u32> {
    // The server's clock, for the instances' own may disagree.
    let (seconds, micros): (u64, u64) = connection.query(&redis::cmd("TIME")).await?;
    // Saturating, because a server may answer anything.
    let now_ms = seconds.saturating_mul(1_000).saturating_add(micros / 1_000);
    // One after the other, because the slot may be on the move. Nothing depends on all of them.
    connection.query::<()>(redis::cmd("ZADD").arg(key).arg(now_ms).arg(id)).await?;
    let gone_ms = now_ms.saturating_sub(LIFETIME_MS);
    connection.query::<()>(redis::cmd("ZREMRANGEBYSCORE").arg(key).arg("-inf").arg(gone_ms)).await?;
    connection.query::<()>(redis::cmd("PEXPIRE").arg(key).arg(LIFETIME_MS)).await?;
    connection.query(redis::cmd("ZCARD").arg(key)).await
}

/// Warns once of a server that refuses: without a number, checks that fail local are refused in an outage.
fn refused(shared: &Shared, key: String, error: &Error) {
    if !matches!(error.kind(), ErrorKind::BadKey | ErrorKind::Misconfigured) {
        return;
    }
    // Each of them is a line in the server's log, so the next ones are rarer.
    shared.heartbeat.beats.fetch_add(1, Ordering::Relaxed);
    if let Some(observer) = shared.observer.get()
        && shared.heartbeat.warned.claim()
    {
        observer.on_warning(&Warning::InstancesUnknown { key, reason: error.message().to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// A count every five seconds.
    fn learn(estimate: &mut Estimate, now_us: &mut u64, counts: &[u32]) -> Vec<u32> {
        let learn = |&count| {
            *now_us += 5 * SECOND;
            estimate.learn(count, *now_us)
        };
        counts.iter().map(learn).collect()
    }

    #[test]
    fn more_instances_are_believed_at_once_and_fewer_after_a_minute() {
        let (mut estimate, mut now) = (Estimate::default(), 0);
        assert_eq!(learn(&mut estimate, &mut now, &[1, 3, 8]), [1, 3, 8]);
        // Redis was emptied, and soon knows of all again.
        assert_eq!(learn(&mut estimate, &mut now, &[1, 5, 8]), [8, 8, 8]);
        // Some have gone. The minute begins with the first lower count.
        assert_eq!(learn(&mut estimate, &mut now, &[4; 12]), [8; 12]);
        assert_eq!(learn(&mut estimate, &mut now, &[5, 4, 6]), [5, 5, 6]);
    }

    #[test]
    fn a_count_as_high_as_before_starts_the_minute_anew() {
        let (mut estimate, mut now) = (Estimate::default(), 0);
        assert_eq!(learn(&mut estimate, &mut now, &[8]), [8]);
        assert_eq!(learn(&mut estimate, &mut now, &[7; 12]), [8; 12]);
        assert_eq!(learn(&mut estimate, &mut now, &[8]), [8]);
        assert_eq!(learn(&mut estimate, &mut now, &[7; 12]), [8; 12]);
        assert_eq!(learn(&mut estimate, &mut now, &[2]), [7]);
    }

    #[test]
    fn an_outage_between_two_counts_does_not_make_a_minute_of_them() {
        let (mut estimate, mut now) = (Estimate::default(), 0);
        assert_eq!(learn(&mut estimate, &mut now, &[8, 1]), [8, 8]);
        for _ in 0..5 {
            now += 3_600 * SECOND;
            assert_eq!(learn(&mut estimate, &mut now, &[1]), [8]);
        }
        now += 3_600 * SECOND;
        assert_eq!(learn(&mut estimate, &mut now, &[2]), [2]);
    }
}
