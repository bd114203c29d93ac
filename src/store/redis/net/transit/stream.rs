//! A stream that records when bytes come, are read and are sent.

use std::sync::{Arc, atomic::Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::{io, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Transit;

/// A stream that records what travels on it.
pub(crate) struct Recorded<S> {
    stream: S,
    transit: Arc<Transit>,
    /// The waker of the last read, in a waker that records that bytes have come.
    waker: Option<(Waker, Waker)>,
}

impl<S> Recorded<S> {
    pub(crate) fn new(stream: S, transit: &Arc<Transit>) -> Self {
        Self { stream, transit: Arc::clone(transit), waker: None }
    }

    /// A waker that records that bytes have come, and then wakes the task of `cx`.
    fn recording(&mut self, cx: &Context<'_>) -> Waker {
        match &self.waker {
            Some((waker, recording)) if waker.will_wake(cx.waker()) => recording.clone(),
            _ => {
                let transit = Arc::clone(&self.transit);
                let recording = Waker::from(Arc::new(Recording { transit, waker: cx.waker().clone() }));
                self.waker.insert((cx.waker().clone(), recording)).1.clone()
            }
        }
    }
}

impl<S> Drop for Recorded<S> {
    fn drop(&mut self) {
        self.transit.is_closed.store(true, Ordering::Release);
    }
}

struct Recording {
    transit: Arc<Transit>,
    waker: Waker,
}

impl Wake for Recording {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.transit.is_unread.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Recorded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let waker = this.recording(cx);
        this.transit.on_read_begins();
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(&mut Context::from_waker(&waker), buf));
        if buf.filled().len() > before {
            this.transit.on_read();
        } else {
            this.transit.is_closed.store(true, Ordering::Release);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recorded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, buf));
        this.transit.on_sent();
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
