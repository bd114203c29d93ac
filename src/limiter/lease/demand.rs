//! The checks of keys without a lease: which of them are worth one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The checks after which a key is hot. More than a block has to save, so that chance does not start a lease.
pub(super) const HOT: u64 = 24;

/// The number of rows, and of the places of each. A place takes eight bytes, so the sketch takes 256 KB, whatever the
/// number of keys is.
const ROWS: usize = 8_192;
const PLACES: usize = 4;

/// How much longer than the span a key stays hot, in milliseconds. The verdict that starts its lease comes a round trip
/// after the check that has made it hot.
const GRACE_MS: u64 = 50;

/// Counts the checks of keys without a lease.
///
/// Each key has one row, which it shares with others. A row remembers four keys: the one with the fewest checks makes
/// room for the next. So a key in a busy row may be found hot late or never. Until then, it is checked in the store, as
/// without a lease.
#[derive(Debug)]
pub(super) struct Demand {
    rows: Box<[[AtomicU64; PLACES]]>,
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

    fn is_within(self, span: u64, now: u64) -> bool {
        let grace = if self.count >= HOT { GRACE_MS } else { 0 };
        now.wrapping_sub(self.since) <= span + grace
    }

    fn pack(self) -> u64 {
        self.tag << 40 | self.since << 8 | self.count
    }
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        let row = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { rows: (0..ROWS).map(|_| row()).collect(), start: now }
    }

    /// Counts a check of the key with this hash. Returns whether the key is hot: there were enough checks in `span`.
    pub(super) fn count(&self, hash: u64, span: Duration, now: Instant) -> bool {
        let (row, tag, now, span) = self.look_up(hash, span, now);
        // Checks at the same time may count as one, which delays a lease a little.
        let mut fewest = (&row[0], u64::MAX);
        for place in row {
            let record = Record::unpack(place.load(Ordering::Relaxed));
            let is_recent = record.count > 0 && record.is_within(span, now);
            if is_recent && record.tag == tag {
                let count = (record.count + 1).min(HOT);
                place.store(Record { count, ..record }.pack(), Ordering::Relaxed);
                return count >= HOT;
            }
            let count = if is_recent { record.count } else { 0 };
            if count < fewest.1 {
                fewest = (place, count);
            }
        }
        fewest.0.store(Record { tag, since: now, count: 1 }.pack(), Ordering::Relaxed);
        false
    }

    /// Whether the key with this hash is hot.
    pub(super) fn is_hot(&self, hash: u64, span: Duration, now: Instant) -> bool {
        let (row, tag, now, span) = self.look_up(hash, span, now);
        row.iter()
            .map(|place| Record::unpack(place.load(Ordering::Relaxed)))
            .any(|record| record.tag == tag && record.count >= HOT && record.is_within(span, now))
    }

    /// The row and the tag of a key; and the time and the span in milliseconds.
    fn look_up(&self, hash: u64, span: Duration, now: Instant) -> (&[AtomicU64; PLACES], u64, u64, u64) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = ms(now.saturating_duration_since(self.start)) & u64::from(u32::MAX);
        (&self.rows[usize::try_from(hash % ROWS as u64).unwrap_or(0)], hash >> 40, now, ms(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(8);

    #[test]
    fn a_key_is_hot_after_enough_checks_within_the_span() {
        let start = Instant::now();
        let demand = Demand::new(start);
        let count = |hash, ms| demand.count(hash, SPAN, start + Duration::from_millis(ms));
        let hash = 0xfedc_ba98_7654_3210;
        assert_eq!((0..HOT).position(|number| count(hash, number / 3)), Some(HOT as usize - 1));
        assert!(!(0..2 * HOT).any(|number| count(hash, 100 + number)), "too slow");
        assert_eq!((0..HOT).position(|number| count(hash, 70_000 + number / 3)), Some(HOT as usize - 1), "at any time");
    }

    #[test]
    fn a_key_is_still_hot_when_the_verdict_on_its_last_check_comes() {
        let start = Instant::now();
        let demand = Demand::new(start);
        let after = |ms| start + Duration::from_millis(ms);
        assert!((0..HOT).any(|_| demand.count(1 << 40, SPAN, after(0))));
        assert!(demand.count(1 << 40, SPAN, after(9)), "another check before the verdict");
        assert!(demand.is_hot(1 << 40, SPAN, after(20)));
        assert!(!demand.is_hot(1 << 40, SPAN, after(100)));
    }

    #[test]
    fn keys_in_one_row_do_not_add_up() {
        let start = Instant::now();
        let demand = Demand::new(start);
        assert!(!(1..100_u64).any(|tag| demand.count(tag << 40, SPAN, start)));
    }

    #[test]
    fn a_key_that_was_checked_twice_keeps_its_place_beside_those_that_are_checked_once() {
        let start = Instant::now();
        let demand = Demand::new(start);
        let mut is_hot = demand.count(1 << 40, SPAN, start);
        for other in 2..50_u64 {
            is_hot |= demand.count(1 << 40, SPAN, start);
            demand.count(other << 40, SPAN, start);
        }
        assert!(is_hot);
    }
}
