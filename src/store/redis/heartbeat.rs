//! How many instances there are: each one touches a sorted set now and then, on the back of its traffic.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::runtime::Handle;

use super::shared::Shared;
use crate::clock::{Clock, SystemClock};

/// Beats only once somebody has asked, and only after a check that Redis has answered: a Redis that is away gets none.
#[derive(Debug)]
pub(super) struct Heartbeat {
    id: u64,
    wanted: AtomicBool,
    /// 0 is not known yet.
    instances: AtomicU32,
    beats: AtomicU32,
    due_us: AtomicU64,
}

/// The first beats are sooner, doubling from here: instances that start together should soon know of each other.
const FIRST: Duration = Duration::from_millis(125);
const EVERY: Duration = Duration::from_secs(5);
/// An instance counts for so long after its last traffic. Too long makes shares smaller than they might be, too short
/// makes the sum of all shares larger than the limit.
const LIFETIME_MS: u64 = 60_000;

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            // The standard library's keys are random, and every state has others.
            id: RandomState::new().hash_one(std::process::id()),
            wanted: AtomicBool::new(false),
            instances: AtomicU32::new(0),
            beats: AtomicU32::new(0),
            due_us: AtomicU64::new(0),
        }
    }
}

impl Heartbeat {
    /// The number at the last beat that Redis answered.
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
        let next = now + u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        self.due_us.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
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

/// `None` leaves everything as it is: the next beat may do better.
async fn beat(shared: Arc<Shared>) -> Option<()> {
    let heartbeat = &shared.heartbeat;
    let link = shared.link().ok()?;
    let mut connection = shared.connect(&link).await.ok()?;
    // The server's clock, for the instances' own may disagree.
    let (seconds, micros): (u64, u64) = connection.query(&redis::cmd("TIME")).await.ok()?;
    let now_ms = seconds * 1_000 + micros / 1_000;
    let key = format!("{}instances", shared.prefix);
    // One after the other, for a cluster knows no pipeline across its masters. Nothing depends on all of them.
    connection.query::<()>(redis::cmd("ZADD").arg(&key).arg(now_ms).arg(heartbeat.id)).await.ok()?;
    let gone_ms = now_ms.saturating_sub(LIFETIME_MS);
    connection.query::<()>(redis::cmd("ZREMRANGEBYSCORE").arg(&key).arg("-inf").arg(gone_ms)).await.ok()?;
    connection.query::<()>(redis::cmd("PEXPIRE").arg(&key).arg(LIFETIME_MS)).await.ok()?;
    let instances = connection.query(redis::cmd("ZCARD").arg(&key)).await.ok()?;
    heartbeat.instances.store(instances, Ordering::Relaxed);
    heartbeat.beats.fetch_add(1, Ordering::Relaxed);
    Some(())
}
