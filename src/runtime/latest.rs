//! The latest value of something that changes, and waiting for a change.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Tasks that wait are woken in their order. tokio's `watch` wakes them in a random order.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> Latest<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        self.lock().clone()
    }

    pub(crate) fn set(&self, value: T) {
        self.change(|latest| *latest = value);
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_waiters();
    }

    /// Waits until the value is wanted.
    pub(crate) async fn wait_for(&self, is_wanted: impl Fn(&T) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if is_wanted(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        // A panic under the lock leaves a valid value.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn tasks_that_wait_are_woken_in_their_order() {
        let (latest, order) = (Arc::new(Latest::new(0)), Arc::new(Mutex::new(Vec::new())));
        let tasks = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|number| {
            let (latest, order) = (Arc::clone(&latest), Arc::clone(&order));
            tokio::spawn(async move {
                latest.wait_for(|value| *value == 2).await;
                order.lock().unwrap().push(number);
            })
        });
        tokio::task::yield_now().await;
        latest.set(1);
        latest.change(|value| *value += 1);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
        assert_eq!(latest.get(), 2);
    }
}
