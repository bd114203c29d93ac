//! What a call sends beside its verdict: settlements, credits and records.

use std::future::{Future, poll_fn};
use std::task::Poll;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// Futures that go on although the call does not wait for them.
#[derive(Debug, Default)]
pub(super) struct Aside(Vec<JoinHandle<()>>);

impl Aside {
    /// Polls a future once, so that a store in memory is done, and leaves the rest to a task.
    pub(super) async fn start(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        let mut future = Box::pin(future);
        if poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await.is_pending() {
            self.0.push(tokio::spawn(future));
        }
    }

    /// Waits for all of them, at most until then.
    pub(super) async fn wait(self, until: Instant) {
        for task in self.0 {
            if timeout_at(until, task).await.is_err() {
                return;
            }
        }
    }
}
