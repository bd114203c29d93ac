//! What travels on a connection: whether a server owes an answer, and whether an answer waits to be read.
//!
//! A runtime with very many tasks may fire a timer in time and read an answer much later, because the task of the
//! connection waits behind all others. A check whose deadline passes meanwhile must not take that for a silent server.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
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
    /// When the server was last known not to be silent: bytes were read, or were sent when it owed nothing. In
    /// microseconds since `start`. Zero if it owes nothing.
    since_us: AtomicU64,
    /// Calls whose replies the task of the connection has not read.
    owed: AtomicUsize,
    /// All calls that have begun.
    begun: AtomicUsize,
    /// Those of them that wait for the task of the connection, or have reached it.
    queued: AtomicUsize,
    /// Those that were queued when the task ran last.
    taken: AtomicUsize,
    /// Those that the task had taken when it sent bytes last. Calls that begin while it sends are not in these bytes.
    sent: AtomicUsize,
    is_closed: AtomicBool,
}

impl Transit {
    pub(in crate::store::redis) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            is_unread: AtomicBool::new(false),
            since_us: AtomicU64::new(0),
            owed: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Whether the connection has ended, so that it says nothing about the server.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether the server owes an answer, and nothing has come for `period`.
    pub(crate) fn is_silent_for(&self, period: Duration) -> bool {
        let since_us = self.since_us.load(Ordering::Acquire);
        !self.is_unread.load(Ordering::Acquire)
            && since_us > 0
            && self.now_us().saturating_sub(since_us) >= micros(period)
    }

    /// The reply of a call, which the server owes until the task of the connection has read it. The task of the call
    /// may run much later.
    pub(super) async fn owes<T>(self: &Arc<Self>, reply: impl Future<Output = T>) -> T {
        let mut reply = pin!(reply);
        let mut debt: Option<Debt> = None;
        poll_fn(|cx| {
            let is_new = debt.is_none();
            let debt = debt.get_or_insert_with(|| Debt(Owed::new(self, cx.waker())));
            debt.0.begin_again(cx.waker());
            let polled = reply.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&debt.0))));
            if is_new {
                self.queued.fetch_add(1, Ordering::AcqRel);
            }
            polled
        })
        .await
    }

    /// The task of the connection, which takes the calls that are queued when it runs.
    pub(super) async fn drive(self: Arc<Self>, driver: impl Future<Output = ()>) {
        let mut driver = pin!(driver);
        poll_fn(|cx| {
            self.takes_queued();
            driver.as_mut().poll(cx)
        })
        .await;
    }

    fn takes_queued(&self) {
        self.taken.store(self.queued.load(Ordering::Acquire), Ordering::Release);
    }

    /// Since `start`, and not zero.
    fn now_us(&self) -> u64 {
        micros(self.start.elapsed()).max(1)
    }

    fn owes_nothing(&self) -> bool {
        // Loaded first, because it grows, and is never more than what has begun.
        let sent = self.sent.load(Ordering::Acquire);
        self.owed.load(Ordering::Acquire) <= self.begun.load(Ordering::Acquire).saturating_sub(sent)
    }

    fn sent(&self) {
        self.sent.store(self.taken.load(Ordering::Acquire), Ordering::Release);
        if self.since_us.load(Ordering::Relaxed) == 0 {
            self.since_us.store(self.now_us(), Ordering::Release);
        }
    }

    fn read(&self) {
        let since_us = if self.owes_nothing() { 0 } else { self.now_us() };
        self.since_us.store(since_us, Ordering::Release);
    }
}

/// A call that waits for its reply. The task of the connection wakes it when it has read the reply.
struct Owed {
    transit: Arc<Transit>,
    is_owed: AtomicBool,
    waker: Mutex<Waker>,
}

impl Owed {
    fn new(transit: &Arc<Transit>, waker: &Waker) -> Arc<Self> {
        transit.begun.fetch_add(1, Ordering::AcqRel);
        transit.owed.fetch_add(1, Ordering::AcqRel);
        let (transit, waker) = (Arc::clone(transit), Mutex::new(waker.clone()));
        Arc::new(Self { transit, is_owed: AtomicBool::new(true), waker })
    }

    /// Records that the call is polled, before it is: it may have been woken to be sent, and not by its reply.
    fn begin_again(&self, waker: &Waker) {
        // The value is replaced as a whole, so a poisoned lock is usable.
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone_from(waker);
        if !self.is_owed.swap(true, Ordering::AcqRel) {
            self.transit.owed.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn end(&self) {
        if self.is_owed.swap(false, Ordering::AcqRel) {
            self.transit.owed.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Wake for Owed {
    fn wake(self: Arc<Self>) {
        self.end();
        if self.transit.owes_nothing() {
            self.transit.since_us.store(0, Ordering::Release);
        }
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}

/// Ends when the reply has come or the call is given up. A call that is given up does not show that the server answers.
struct Debt(Arc<Owed>);

impl Drop for Debt {
    fn drop(&mut self) {
        self.0.end();
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
            this.transit.read();
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
        sync::oneshot::channel,
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

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_answered_one_of_two_calls_is_silent_until_it_answers_the_other() {
        let (client, mut server) = duplex(64);
        let transit = Transit::new();
        let mut client = Recorded::new(client, &transit);
        let cx = &mut Context::from_waker(Waker::noop());
        advance(PERIOD).await;
        let [(first, one), (second, other)] = [channel::<()>(), channel::<()>()];
        let (mut one, mut other) = (Box::pin(transit.owes(one)), Box::pin(transit.owes(other)));
        assert!(one.as_mut().poll(cx).is_pending() && other.as_mut().poll(cx).is_pending());
        transit.takes_queued();
        client.write_all(b"PINGPING").await.unwrap();
        for (reply, is_silent) in [(first, true), (second, false)] {
            server.write_all(b"PONG").await.unwrap();
            client.read_exact(&mut [0; 4]).await.unwrap();
            reply.send(()).unwrap();
            assert!(!transit.is_silent_for(PERIOD), "just answered");
            advance(PERIOD).await;
            assert_eq!(transit.is_silent_for(PERIOD), is_silent, "the calls have not run since");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn law_14_a_call_that_begins_while_bytes_are_sent_is_not_owed_until_it_is_sent() {
        let (client, mut server) = duplex(64);
        let transit = Transit::new();
        let mut client = Recorded::new(client, &transit);
        let cx = &mut Context::from_waker(Waker::noop());
        advance(PERIOD).await;
        let [(first, one), (_second, other)] = [channel::<()>(), channel::<()>()];
        let (mut one, mut other) = (Box::pin(transit.owes(one)), Box::pin(transit.owes(other)));
        assert!(one.as_mut().poll(cx).is_pending());
        transit.takes_queued();
        assert!(other.as_mut().poll(cx).is_pending());
        client.write_all(b"PING").await.unwrap();
        server.write_all(b"PONG").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
        first.send(()).unwrap();
        advance(PERIOD).await;
        assert!(!transit.is_silent_for(PERIOD), "the other call is not sent");
        transit.takes_queued();
        client.write_all(b"PING").await.unwrap();
        advance(PERIOD).await;
        assert!(transit.is_silent_for(PERIOD));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_leaves_a_silent_server_silent_until_bytes_come() {
        let (client, mut server) = duplex(64);
        let transit = Transit::new();
        let mut client = Recorded::new(client, &transit);
        advance(PERIOD).await;
        let (_reply, call) = channel::<()>();
        let mut call = Box::pin(transit.owes(call));
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        transit.takes_queued();
        client.write_all(b"PING").await.unwrap();
        advance(PERIOD).await;
        drop(call);
        assert!(transit.is_silent_for(PERIOD));
        server.write_all(b"PONG").await.unwrap();
        client.read_exact(&mut [0; 4]).await.unwrap();
        advance(PERIOD).await;
        assert!(!transit.is_silent_for(PERIOD));
    }
}
