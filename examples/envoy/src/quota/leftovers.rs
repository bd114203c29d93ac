//! The blocks of streams that have ended. Envoys may still spend them, so they stay held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{runtime::Handle, sync::OwnedSemaphorePermit, time::sleep_until};
use tollgate::Key;

use super::grant::Block;

/// The units of these blocks, by count.
#[derive(Debug, Default)]
pub(super) struct Leftovers(Mutex<HashMap<Key, u64>>);

impl Leftovers {
    pub(super) fn of(&self, key: &Key) -> u64 {
        self.units().get(key).copied().unwrap_or_default()
    }

    fn add(&self, block: &Block) {
        let mut units = self.units();
        let sum = units.entry(block.key.clone()).or_default();
        *sum = sum.saturating_add(block.units);
    }

    fn remove(&self, block: &Block) {
        let mut units = self.units();
        if let Some(sum) = units.get_mut(&block.key) {
            *sum = sum.saturating_sub(block.units);
            if *sum == 0 {
                units.remove(&block.key);
            }
        }
    }

    fn units(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps blocks until no Envoy spends them, and charges them in full.
pub(super) fn keep(mut blocks: Vec<Block>, leftovers: &Arc<Leftovers>, place: &Arc<OwnedSemaphorePermit>) {
    if blocks.is_empty() {
        return;
    }
    blocks.sort_by_key(Block::end);
    // Without a runtime, the store ends them at their time-to-live.
    let Ok(runtime) = Handle::try_current() else { return };
    let (leftovers, place) = (Arc::clone(leftovers), Arc::clone(place));
    blocks.iter().for_each(|block| leftovers.add(block));
    runtime.spawn(async move {
        for block in blocks {
            sleep_until(block.end()).await;
            leftovers.remove(&block);
            drop(block.hold);
        }
        drop(place);
    });
}
