//! The records of a sliding window log in little memory.

use std::collections::VecDeque;

/// One step of F, the cost admitted up to a time (see `sliding_window_log`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Record {
    /// The time in microseconds, rounded up to the resolution.
    pub(super) at: u64,
    /// The cumulative cost up to this time.
    pub(super) total: u64,
}

/// A queue of the records before the newest one, which the owner keeps and passes to most calls.
#[derive(Clone, Debug)]
pub(super) enum RecordQueue {
    /// A record is one word: the low halves of its time and of its total. The newest record gives the high halves,
    /// because its time is less than 2^32 microseconds (71 minutes) later and its total less than 2^32 units greater.
    Near(VecDeque<u64>),
    /// Whole records, in a queue that reaches further back. Boxed, so that the smaller variant sets the size of a log.
    #[expect(clippy::box_collection, reason = "the box makes the variant smaller")]
    Far(Box<VecDeque<Record>>),
}

impl Default for RecordQueue {
    fn default() -> Self {
        Self::Near(VecDeque::new())
    }
}

impl RecordQueue {
    /// Number of records.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Near(words) => words.len(),
            Self::Far(records) => records.len(),
        }
    }

    /// A record, counted from the oldest one.
    #[inline(always)]
    pub(super) fn get(&self, index: usize, newest: Record) -> Option<Record> {
        match self {
            Self::Near(words) => words.get(index).map(|&word| {
                let whole = |newest: u64, half: u64| newest - u64::from((newest as u32).wrapping_sub(half as u32));
                Record { at: whole(newest.at, word >> 32), total: whole(newest.total, word) }
            }),
            Self::Far(records) => records.get(index).copied(),
        }
    }

    /// Changes to whole records if the queue would reach too far for words. Must be called before `after` takes the
    /// place of the newest record. No record of the queue is before `oldest`.
    #[inline(always)]
    pub(super) fn widen_for(&mut self, oldest: Record, newest: Record, after: Record) {
        if (after.at - oldest.at).max(after.total - oldest.total) > u32::MAX.into() {
            self.widen(newest);
        }
    }

    #[cold]
    fn widen(&mut self, newest: Record) {
        if let Self::Near(words) = self {
            let records = (0..words.len()).filter_map(|index| self.get(index, newest)).collect();
            *self = Self::Far(Box::new(records));
        }
    }

    /// Adds a record at the end.
    #[inline(always)]
    pub(super) fn push(&mut self, record: Record) {
        match self {
            Self::Near(words) => {
                if words.len() == words.capacity() {
                    grow(words);
                }
                words.push_back((record.at << 32) | (record.total & u64::from(u32::MAX)));
            }
            Self::Far(records) => records.push_back(record),
        }
    }

    /// Lowers all totals by `start`, a multiple of 2^32.
    pub(super) fn rebase(&mut self, start: u64) {
        if let Self::Far(records) = self {
            records.iter_mut().for_each(|record| record.total -= start);
        }
    }

    /// Drops all records.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Near(words) => words.clear(),
            Self::Far(_) => *self = Self::default(),
        }
    }

    /// Keeps the first `count` records.
    pub(super) fn truncate(&mut self, count: usize) {
        match self {
            Self::Near(words) => words.truncate(count),
            Self::Far(records) => records.truncate(count),
        }
    }

    /// Drops the first `count` records. The queue has at least as many.
    #[inline(always)]
    pub(super) fn drop_first(&mut self, count: usize) {
        match self {
            Self::Near(words) if count <= FEW => {
                for _ in 0..count {
                    words.pop_front();
                }
            }
            Self::Near(words) => drop(words.drain(..count)),
            Self::Far(records) => drop(records.drain(..count)),
        }
    }

    /// The number of records with a property that no record has after one without it.
    #[inline(always)]
    pub(super) fn count(&self, newest: Record, property: impl Fn(Record) -> bool) -> usize {
        let has = |index: usize| self.get(index, newest).is_some_and(&property);
        // Scans a few records from the front, and searches all of them only if those have the property.
        for index in 0..FEW {
            if !has(index) {
                return index;
            }
        }
        self.search(FEW, newest, property)
    }

    #[inline(never)]
    fn search(&self, mut from: usize, newest: Record, property: impl Fn(Record) -> bool) -> usize {
        let mut to = self.len();
        while from < to {
            let middle = from.midpoint(to);
            match self.get(middle, newest) {
                Some(record) if property(record) => from = middle + 1,
                _ => to = middle,
            }
        }
        from
    }
}

/// Not to twice the size: the queue goes round in all of its memory, which should stay in the processor's caches.
#[cold]
fn grow(words: &mut VecDeque<u64>) {
    words.reserve_exact(words.len() / 4 + 4);
}

/// For a key in steady use, at most this many records leave the window between two checks.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    impl RecordQueue {
        /// The size of the allocated memory in words.
        pub(in crate::algorithm) fn capacity(&self) -> usize {
            match self {
                Self::Near(words) => words.capacity(),
                Self::Far(records) => 2 * records.capacity(),
            }
        }
    }

    /// The queue beside a list. Times and totals grow by steps around the largest reach of one word.
    #[test]
    fn a_queue_of_any_reach_keeps_its_records() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        let (mut near, mut far) = (0, 0);
        for run in 0..400 {
            let step = [10, 1 << 20, (1 << 32) / 16, 1 << 33][run % 4];
            let (mut queue, mut list) = (RecordQueue::default(), Vec::new());
            let mut newest = Record { at: below(1 << 31) << 20, total: below(1 << 31) << 10 };
            for _ in 0..200 {
                let oldest = *list.first().unwrap_or(&newest);
                // The newest record may also grow in place.
                let (time, cost) = if below(2) == 0 { (below(step), below(10)) } else { (below(10), below(step)) };
                let after = Record { at: newest.at + time, total: newest.total + cost };
                queue.widen_for(oldest, newest, after);
                if below(4) > 0 {
                    queue.push(newest);
                    list.push(newest);
                }
                newest = after;
                assert_eq!(queue.len(), list.len());
                let records: Vec<_> = (0..list.len()).map(|index| queue.get(index, newest).unwrap()).collect();
                assert_eq!(records, list);
                assert_eq!(queue.get(list.len(), newest), None);
                let bound = newest.at - below(16 * step).min(newest.at);
                let count = list.partition_point(|record| record.at < bound);
                assert_eq!(queue.count(newest, |record| record.at < bound), count);
                *(if let RecordQueue::Far(_) = queue { &mut far } else { &mut near }) += list.len();
                if below(8) == 0 {
                    if count < list.len() {
                        queue.drop_first(count)
                    } else {
                        queue.clear()
                    }
                    list.drain(..count);
                }
            }
        }
        assert!(near > 10_000 && far > 10_000, "{near} {far}");
    }

    /// The queue has room for a quarter more, and grows rarely.
    #[test]
    fn a_record_takes_one_word() {
        let (mut queue, mut sizes) = (RecordQueue::default(), 0);
        for at in 0..10_000 {
            let before = queue.capacity();
            queue.push(Record { at, total: at });
            assert!(queue.capacity() <= queue.len() * 5 / 4 + 4, "{} words at {at}", queue.capacity());
            sizes += u32::from(queue.capacity() != before);
        }
        assert!(sizes < 60, "{sizes}");
    }
}
