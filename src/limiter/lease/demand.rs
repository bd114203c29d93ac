//! Keys that may need a lease: a small sketch of the checks of the last milliseconds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// The number of checks within [`SPAN`] after which a key is hot.
const HOT: u64 = 4;
const SPAN: Duration = Duration::from_millis(8);
/// The number of places. A place takes eight bytes, so the sketch takes 32 KB, whatever the number of keys is.
const PLACES: usize = 4_096;

/// Counts the checks of keys without a lease.
///
/// Each key has one place, which it shares with others. A place remembers the last key that was counted there, so a key
/// in a busy place may be found hot late or never. It is then checked in the store, as without a lease.
#[derive(Debug)]
pub(super) struct Demand {
    places: Box<[AtomicU64]>,
    start: Instant,
}

/// What a place remembers: 24 bits of a hash, 32 bits of a time in milliseconds, and a count of 8 bits.
#[derive(Clone, Copy)]
struct Record {
    tag: u64,
    since: u64,
    count: u64,
}

impl Record {
    fn unpack(bits: u64) -> Self {
        Self { tag: bits >> 40, since: (bits >> 8) & u64::from(u32::MAX), count: bits & 0xff }
    }

    fn pack(self) -> u64 {
        self.tag << 40 | self.since << 8 | self.count
    }
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), start: now }
    }

    /// Counts a check of the key with this hash. Returns whether the key is hot.
    pub(super) fn count(&self, hash: u64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.start).as_millis();
        let now = u64::try_from(elapsed).unwrap_or(u64::MAX) & u64::from(u32::MAX);
        let place = &self.places[usize::try_from(hash % PLACES as u64).unwrap_or(0)];
        // Two checks at the same time may count as one, which delays a lease a little.
        let record = Record::unpack(place.load(Ordering::Relaxed));
        let tag = hash >> 40;
        let is_recent = now.wrapping_sub(record.since) <= SPAN.as_millis() as u64;
        let record = if record.count > 0 && record.tag == tag && is_recent {
            Record { count: (record.count + 1).min(HOT), ..record }
        } else {
            Record { tag, since: now, count: 1 }
        };
        place.store(record.pack(), Ordering::Relaxed);
        record.count >= HOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hot_after_four_checks_within_milliseconds() {
        let start = Instant::now();
        let demand = Demand::new(start);
        let at = |ms| start + Duration::from_millis(ms);
        let hash = 0xfedc_ba98_7654_3210;
        assert_eq!([0, 1, 2, 8].map(|ms| demand.count(hash, at(ms))), [false, false, false, true]);
        assert_eq!([100, 105, 109, 114].map(|ms| demand.count(hash, at(ms))), [false; 4], "too slow");
    }

    #[test]
    fn keys_in_one_place_do_not_add_up() {
        let start = Instant::now();
        let demand = Demand::new(start);
        for _ in 0..100 {
            for tag in [1_u64, 2] {
                assert!(!demand.count(tag << 40, start));
            }
        }
    }
}
