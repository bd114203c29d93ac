//! The pauses of a limiter, also of keys that no call waits for.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::{key_pause::KeyPause, queue_id::QueueId};

/// The paused keys of a limiter, in a bounded number.
#[derive(Debug)]
pub(super) struct PausedKeys {
    by_key: HashMap<QueueId, (PauseEnd, KeyPause)>,
    by_end: BTreeMap<PauseEnd, QueueId>,
    last_number: u64,
    /// The largest number of paused keys.
    max: usize,
    fullness: Fullness,
}

/// When a pause ends, and a number that distinguishes it from others that end at the same time.
type PauseEnd = (Instant, u64);

/// Whether pauses were given up, because too many keys were paused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fullness {
    Never,
    /// Not reported yet.
    Due,
    Reported,
}

/// A paused key takes less than 500 bytes, so the pauses of a limiter take less than 50 MB.
const MAX: usize = 100_000;

/// The most pauses that a new pause removes because they are over. More than one, so that their number falls.
const REMOVED_AT_ONCE: usize = 2;

impl PausedKeys {
    /// Changes the pause of a key.
    ///
    /// If too many keys are paused, the pause that ends first is given up: its upstream is called too early, but by the
    /// shortest time.
    pub(super) fn change(&mut self, id: QueueId, now: Instant, change: impl FnOnce(&mut KeyPause)) {
        for _ in 0..REMOVED_AT_ONCE {
            if self.by_end.first_key_value().is_some_and(|((first, _), _)| *first <= now) {
                self.remove_first();
            }
        }
        let mut pause = self.pause(&id);
        change(&mut pause);
        let Some(end) = pause.end(true, now) else {
            self.remove(&id);
            return;
        };
        if let Some((present, kept)) = self.by_key.get_mut(&id)
            && present.0 == end
        {
            *kept = pause;
            return;
        }
        self.remove(&id);
        self.last_number += 1;
        let end = (end, self.last_number);
        self.by_end.insert(end, id.clone());
        self.by_key.insert(id, (end, pause));
        if self.by_key.len() > self.max {
            self.remove_first();
            if self.fullness == Fullness::Never {
                self.fullness = Fullness::Due;
            }
        }
    }

    /// The largest number of paused keys, once after pauses were given up because of it.
    pub(super) fn claim_warning(&mut self) -> Option<usize> {
        if self.fullness != Fullness::Due {
            return None;
        }
        self.fullness = Fullness::Reported;
        Some(self.max)
    }

    /// The pause of a key, which may be over.
    pub(super) fn pause(&self, id: &QueueId) -> KeyPause {
        self.by_key.get(id).map(|(_, pause)| *pause).unwrap_or_default()
    }

    /// Forgets the pause of a key.
    pub(super) fn remove(&mut self, id: &QueueId) {
        if let Some((end, _)) = self.by_key.remove(id) {
            self.by_end.remove(&end);
        }
    }

    fn remove_first(&mut self) {
        if let Some((_, id)) = self.by_end.pop_first() {
            self.by_key.remove(&id);
        }
    }
}

impl Default for PausedKeys {
    fn default() -> Self {
        let (by_key, by_end) = (HashMap::new(), BTreeMap::new());
        Self { by_key, by_end, last_number: 0, max: MAX, fullness: Fullness::Never }
    }
}
