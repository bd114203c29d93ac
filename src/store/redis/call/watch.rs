//! Starts calls of a slot whose requests would otherwise wait for the replies to earlier calls.

use std::sync::Arc;

use super::{
    client::Client,
    per_runtime::PerRuntime,
    queue::{MAX_WAIT, Queue},
    series::CallSeries,
};

/// Watches the requests that wait in a slot. When it is dropped, also by a runtime that shuts down, the slot counts as
/// not watched.
pub(super) struct Watch {
    client: Arc<Client>,
    runtime: Arc<PerRuntime>,
    slot: u16,
    ended: bool,
}

impl Watch {
    /// Starts to watch a slot whose queue is marked as watched.
    pub(super) fn start(client: Arc<Client>, runtime: Arc<PerRuntime>, slot: u16) {
        tokio::spawn(watch(Self { client, runtime, slot, ended: false }));
    }

    /// Returns whether a call has to start. Ends if no request waits, under one lock as in [`CallSeries::end_if_idle`].
    fn start_late_call(&mut self) -> bool {
        let mut queues = self.runtime.queues.lock();
        let queue = queues.get_mut(&self.slot).filter(|queue| !queue.is_empty());
        let starts = queue.map(Queue::start_late_call);
        self.ended = starts.is_none();
        if let (true, Some(queue)) = (self.ended, queues.get_mut(&self.slot)) {
            queue.is_watched = false;
        }
        starts.unwrap_or(false)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended
            && let Some(queue) = self.runtime.queues.lock().get_mut(&self.slot)
        {
            queue.is_watched = false;
        }
    }
}

/// Starts calls while requests wait and no call has started for [`MAX_WAIT`].
async fn watch(mut watch: Watch) {
    while !watch.ended {
        tokio::time::sleep(MAX_WAIT).await;
        if watch.start_late_call() {
            CallSeries::start(&watch.client, &watch.runtime, watch.slot);
        }
    }
}
