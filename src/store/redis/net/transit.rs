//! What travels on a connection: whether a server owes an answer, and whether an answer waits to be read.
//!
//! A runtime with very many tasks may fire a timer in time and read an answer much later, because the task of the
//! connection waits behind all others. A check whose deadline passes meanwhile must not take that for a silent server.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::clock::micros;

/// What is known about the answers on one connection.
#[derive(Debug)]
pub(crate) struct Transit {
    start: Instant,
    /// Whether bytes have come that the task of the connection has not read.
    is_unread: AtomicBool,
    /// When bytes were sent first after the last bytes were read, in microseconds since `start`. Zero if none were.
    sent_us: AtomicU64,
    is_closed: AtomicBool,
}

impl Transit {
    pub(in crate::store::redis) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            is_unread: AtomicBool::new(false),
            sent_us: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Whether the connection has ended, so that it says nothing about the server.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether nothing has come for `period` after a request was sent.
    pub(crate) fn is_silent_for(&self, period: Duration) -> bool {
        let sent_us = self.sent_us.load(Ordering::Acquire);
        !self.is_unread.load(Ordering::Acquire)
            && sent_us > 0
            && self.now_us().saturating_sub(sent_us) >= micros(period)
    }

    /// Since `start`, and not zero.
    fn now_us(&self) -> u64 {
        micros(self.start.elapsed()).max(1)
    }

    fn sent(&self) {
        if self.sent_us.load(Ordering::Relaxed) == 0 {
            self.sent_us.store(self.now_us(), Ordering::Release);
        }
    }
}

/// A stream that records what travels on it.
pub(super) struct Recorded<S> {
    stream: S,
    transit: Arc<Transit>,
    /// The waker of the last read, in a waker that records that bytes have come.
    waker: Option<(Waker, Waker)>,
}

impl<S> Recorded<S> {
    pub(super) fn new(stream: S, transit: &Arc<Transit>) -> Self {
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
        this.transit.is_unread.store(false, Ordering::Release);
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(&mut Context::from_waker(&waker), buf));
        if buf.filled().len() > before {
            this.transit.sent_us.store(0, Ordering::Release);
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
        this.transit.sent();
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::advance,
    };

    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn a_server_is_silent_from_a_request_until_bytes_come_whether_or_not_they_are_read() {
        let (client, mut server) = duplex(64);
        let transit = Transit::new();
        let mut client = Recorded::new(client, &transit);
        let mut bytes = [0; 4];
        advance(PERIOD).await;
        assert!(!transit.is_silent_for(PERIOD), "nothing was sent");
        client.write_all(b"PING").await.unwrap();
        assert!(!transit.is_silent_for(PERIOD), "just sent");
        let mut read = Box::pin(client.read_exact(&mut bytes));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(read.as_mut().poll(cx).is_pending());
        advance(PERIOD).await;
        assert!(transit.is_silent_for(PERIOD), "nothing has come");
        server.write_all(b"PONG").await.unwrap();
        assert!(!transit.is_silent_for(PERIOD), "unread");
        assert!(read.as_mut().poll(cx).is_ready());
        advance(PERIOD).await;
        assert!(!transit.is_silent_for(PERIOD) && !transit.is_closed(), "read");
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_is_closed() {
        let (client, server) = duplex(64);
        let transit = Transit::new();
        let mut client = Recorded::new(client, &transit);
        drop(server);
        assert!(!transit.is_closed());
        assert_eq!(client.read(&mut [0; 4]).await.unwrap(), 0);
        assert!(transit.is_closed());
        let transit = Transit::new();
        drop(Recorded::new(client, &transit));
        assert!(transit.is_closed());
    }
}
