//! A viewer: the end at which frames come in, and the end that its connection reads.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::body::Bytes;
use futures_util::Stream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tollgate::observe::Fingerprint;

/// Frames that wait for a viewer: one that is more than three seconds behind is dropped, and may connect again.
const MOST_FRAMES: usize = 32;

type Waiting = Mutex<Option<Receiver<Bytes>>>;

pub(super) struct Viewer {
    pub(super) visitor: Fingerprint,
    sender: Sender<Bytes>,
    waiting: Weak<Waiting>,
}

/// The frames of a viewer.
pub(super) struct Frames(Arc<Waiting>);

/// A new viewer, and its frames.
pub(super) fn viewer(visitor: Fingerprint) -> (Viewer, Frames) {
    let (sender, receiver) = channel(MOST_FRAMES);
    let frames = Arc::new(Mutex::new(Some(receiver)));
    (Viewer { visitor, sender, waiting: Arc::downgrade(&frames) }, Frames(frames))
}

impl Viewer {
    pub(super) fn has_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a frame. Returns whether the viewer is still there: it has not gone away, and is not too slow.
    ///
    /// The connection of one that is too slow may stand still for as long as it likes, so its frames are dropped here.
    pub(super) fn send(&self, frame: &Bytes) -> bool {
        let is_sent = self.sender.try_send(frame.clone()).is_ok();
        if !is_sent && let Some(waiting) = self.waiting.upgrade() {
            drop(lock(&waiting).take());
        }
        is_sent
    }
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match &mut *lock(&self.0) {
            Some(frames) => frames.poll_recv(cx),
            None => Poll::Ready(None),
        }
    }
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, Option<Receiver<Bytes>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
