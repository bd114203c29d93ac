//! Counts the instances of a service: each refreshes its own entry in a sorted set while it has traffic.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::RedisResult;
use tokio::runtime::Handle;

use super::call::client::Client;
use super::net::{error, routed::RoutedConnection};
use crate::clock::{Clock, SystemClock, micros};
use crate::error::{Error, ErrorKind};
use crate::observe::{Event, Once, Warning};
use crate::runtime::random;

/// Counts the instances.
///
/// Starts when the number is requested for the first time. Runs only after a check that Redis has answered, so a Redis
/// that is unavailable gets no requests.
#[derive(Debug)]
pub(super) struct Instances {
    /// This instance's entry.
    id: u64,
    is_wanted: AtomicBool,
    /// The number of instances; 0 while it is unknown.
    number: AtomicU32,
    estimate: Mutex<Estimate>,
    /// Refreshes so far.
    refreshes: AtomicU32,
    /// When the next refresh is due.
    due_us: AtomicU64,
    warned: Once,
}

/// The pause before the second refresh. It doubles from here, so that instances that start together soon count each
/// other.
const FIRST_PAUSE: Duration = Duration::from_millis(125);
/// The longest pause between two refreshes.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long an instance counts after its last traffic. A longer time makes shares smaller than necessary; a shorter
/// time makes the sum of all shares larger than the limit.
const LIFETIME_MS: u64 = 60_000;

/// The number of instances, estimated from the counts of Redis.
///
/// A higher count is adopted at once. A lower count is adopted when all counts were lower for a lifetime: a Redis that
/// has lost its data counts the instances from zero, one after the other, and each would take a larger share.
#[derive(Debug, Default)]
struct Estimate {
    number: u32,
    lower: Option<LowerCounts>,
}

/// Consecutive counts that are lower than the estimate.
#[derive(Debug)]
struct LowerCounts {
    highest: u32,
    /// For how long all counts have been lower.
    for_us: u64,
    /// When the last count was made.
    last_us: u64,
}

/// The longest time between two lower counts that is added to [`LowerCounts::for_us`]. A longer time is an outage, in
/// which nothing was counted.
const MAX_GAP: Duration = MAX_PAUSE.saturating_mul(2);

impl Estimate {
    /// Adds a count of Redis at `now_us` and returns the new estimate.
    fn add(&mut self, count: u32, now_us: u64) -> u32 {
        if count >= self.number {
            *self = Self { number: count, lower: None };
            return count;
        }
        let lower = self.lower.get_or_insert(LowerCounts { highest: count, for_us: 0, last_us: now_us });
        lower.highest = lower.highest.max(count);
        lower.for_us += now_us.saturating_sub(lower.last_us).min(micros(MAX_GAP));
        lower.last_us = now_us;
        if lower.for_us >= LIFETIME_MS * 1_000 {
            *self = Self { number: lower.highest, lower: None };
        }
        self.number
    }
}

impl Default for Instances {
    fn default() -> Self {
        Self {
            id: random::number(),
            is_wanted: AtomicBool::new(false),
            number: AtomicU32::new(0),
            estimate: Mutex::default(),
            refreshes: AtomicU32::new(0),
            due_us: AtomicU64::new(0),
            warned: Once::default(),
        }
    }
}

impl Instances {
    /// The number of instances. `None` before the first refresh.
    pub(super) fn number(&self) -> Option<u32> {
        self.is_wanted.store(true, Ordering::Relaxed);
        Some(self.number.load(Ordering::Relaxed)).filter(|&number| number > 0)
    }

    /// Returns true to one caller when a refresh is due.
    fn is_due(&self) -> bool {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return false;
        }
        let (now, due) = (SystemClock.now_us(), self.due_us.load(Ordering::Relaxed));
        if now < due {
            return false;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.refreshes.load(Ordering::Relaxed).min(10)).min(MAX_PAUSE);
        let next = now.saturating_add(micros(pause));
        self.due_us.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Adds a count of Redis to the estimate.
    fn add_count(&self, count: u32) {
        // A panic under the lock leaves a valid estimate.
        let mut estimate = self.estimate.lock().unwrap_or_else(PoisonError::into_inner);
        self.number.store(estimate.add(count, SystemClock.now_us()), Ordering::Relaxed);
        self.refreshes.fetch_add(1, Ordering::Relaxed);
    }

    /// Warns once of a server that refuses to count: without a number, failure policy `local` refuses checks in an
    /// outage.
    fn refused(&self, client: &Client, key: String, error: &Error) {
        if !matches!(error.kind(), ErrorKind::BadKey | ErrorKind::StoreMisconfigured) {
            return;
        }
        // Each attempt is a line in the server's log, so the pauses become longer.
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        if let Some(observer) = client.observer.get()
            && self.warned.claim()
        {
            observer.on_event(&Event::of_warning(Warning::instances_unknown(&key, error.message())));
        }
    }
}

/// Refreshes this instance's entry if a refresh is due. A task does so, because the check has its answer already.
pub(super) fn refresh_if_due(instances: &Arc<Instances>, client: &Arc<Client>) {
    if instances.is_due()
        && let Ok(runtime) = Handle::try_current()
    {
        runtime.spawn(refresh(Arc::clone(instances), Arc::clone(client)));
    }
}

/// Refreshes the entry and the number. A refresh that fails changes nothing; a later check starts the next one.
async fn refresh(instances: Arc<Instances>, client: Arc<Client>) {
    let Ok(runtime) = client.runtime() else { return };
    let key = format!("{}instances", client.keys.prefix());
    let slot = client.target.slot_of(key.as_bytes());
    let Ok(mut connection) = client.connect(&runtime.pool, slot).await else { return };
    match count(&mut connection, &key, instances.id).await {
        Ok(count) => instances.add_count(count),
        Err(error) => instances.refused(&client, key, &error::convert(&error, &client.target.passwords())),
    }
}

/// Refreshes an entry, removes expired ones and those from the future, and counts the rest. In one step, so that no key
/// is left without a TTL. An entry from the future would count until then: another program has written it, or the
/// server's clock was ahead. The clocks of the instances may differ, so the script reads the server's.
const COUNT: &str = "
local key, id, lifetime = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', key, now, id)
redis.call('ZREMRANGEBYSCORE', key, '-inf', now - lifetime)
redis.call('ZREMRANGEBYSCORE', key, '(' .. now + lifetime, '+inf')
redis.call('PEXPIRE', key, lifetime)
return redis.call('ZCARD', key)";

async fn count(connection: &mut RoutedConnection, key: &str, id: u64) -> RedisResult<u32> {
    connection.query(redis::cmd("EVAL").arg(COUNT).arg(1).arg(key).arg(id).arg(LIFETIME_MS)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// Adds a count every five seconds.
    fn add_all(estimate: &mut Estimate, now_us: &mut u64, counts: &[u32]) -> Vec<u32> {
        let add = |&count| {
            *now_us += 5 * SECOND;
            estimate.add(count, *now_us)
        };
        counts.iter().map(add).collect()
    }

    #[test]
    fn a_higher_count_is_adopted_at_once_and_a_lower_one_after_a_minute() {
        let (mut estimate, mut now) = (Estimate::default(), 0);
        assert_eq!(add_all(&mut estimate, &mut now, &[1, 3, 8]), [1, 3, 8]);
        // Redis was emptied, and soon counts all instances again.
        assert_eq!(add_all(&mut estimate, &mut now, &[1, 5, 8]), [8, 8, 8]);
        // Some instances have gone. The minute begins with the first lower count.
        assert_eq!(add_all(&mut estimate, &mut now, &[4; 12]), [8; 12]);
        assert_eq!(add_all(&mut estimate, &mut now, &[5, 4, 6]), [5, 5, 6]);
    }

    #[test]
    fn a_count_as_high_as_before_starts_the_minute_anew() {
        let (mut estimate, mut now) = (Estimate::default(), 0);
        assert_eq!(add_all(&mut estimate, &mut now, &[8]), [8]);
        assert_eq!(add_all(&mut estimate, &mut now, &[7; 12]), [8; 12]);
        assert_eq!(add_all(&mut estimate, &mut now, &[8]), [8]);
        assert_eq!(add_all(&mut estimate, &mut now, &[7; 12]), [8; 12]);
        assert_eq!(add_all(&mut estimate, &mut now, &[2]), [7]);
    }

    #[test]
    fn an_outage_between_two_counts_does_not_complete_the_minute() {
        let (mut estimate, mut now) = (Estimate::default(), 0);
        assert_eq!(add_all(&mut estimate, &mut now, &[8, 1]), [8, 8]);
        for _ in 0..5 {
            now += 3_600 * SECOND;
            assert_eq!(add_all(&mut estimate, &mut now, &[1]), [8]);
        }
        now += 3_600 * SECOND;
        assert_eq!(add_all(&mut estimate, &mut now, &[2]), [2]);
    }

    #[test]
    fn refreshes_are_due_after_pauses_that_double_up_to_five_seconds() {
        let mut now_us = SECOND;
        let world = crate::runtime::world::World::enter(now_us, 1);
        let instances = Instances::default();
        assert!(!instances.is_due(), "nobody wants the number");
        assert_eq!(instances.number(), None);
        for pause_ms in [125, 250, 500, 1_000, 2_000, 4_000, 5_000, 5_000] {
            assert!(instances.is_due() && !instances.is_due());
            instances.add_count(2);
            world.set_time_us(now_us + pause_ms * 1_000 - 1);
            assert!(!instances.is_due(), "{pause_ms}");
            now_us += pause_ms * 1_000;
            world.set_time_us(now_us);
        }
    }
}
