//! What travels on a connection: whether a server owes an answer, and whether an answer waits to be read.
//!
//! A runtime with very many tasks may fire a timer in time and read an answer much later, because the task of the
//! connection waits behind all others. A check whose deadline passes meanwhile must not take that for a silent server.

mod call;
mod stream;

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::{pin::pin, sync::Arc, time::Duration};

use tokio::time::Instant;

pub(super) use self::stream::Recorded;
use crate::clock::micros;

/// What is known about the answers on one connection.
#[derive(Debug)]
pub(crate) struct Transit {
    start: Instant,
    /// Whether bytes have come that the task of the connection has not begun to read.
    is_unread: AtomicBool,
    /// When the server was last known not to be silent: bytes were read, or were sent when it owed nothing. In
    /// microseconds since `start`. Zero if it owes nothing.
    since_us: AtomicU64,
    /// Whether the task of the connection has read bytes during its current poll.
    has_read: AtomicBool,
    /// Calls whose replies the task of the connection has not read. Below zero for a moment if a reply comes while its
    /// call is recorded.
    owed: AtomicIsize,
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
            has_read: AtomicBool::new(false),
            owed: AtomicIsize::new(0),
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
        // Loaded before the time: a reader sets the time first, and clears this second.
        let is_unread = self.is_unread.load(Ordering::Acquire);
        let since_us = self.since_us.load(Ordering::Acquire);
        !is_unread && since_us > 0 && self.now_us().saturating_sub(since_us) >= micros(period)
    }

    /// The task of the connection, which takes the calls that are queued when it runs.
    pub(super) async fn drive(self: Arc<Self>, driver: impl Future<Output = ()>) {
        let mut driver = pin!(driver);
        poll_fn(|cx| {
            self.before_poll();
            let polled = driver.as_mut().poll(cx);
            self.after_poll();
            polled
        })
        .await;
    }

    fn before_poll(&self) {
        self.taken.store(self.queued.load(Ordering::Acquire), Ordering::Release);
    }

    /// Checks what the server still owes, when the calls have got all replies that were read. Calls that are given up
    /// between the bytes and their replies owe nothing.
    fn after_poll(&self) {
        if self.has_read.swap(false, Ordering::AcqRel) && self.owes_nothing() {
            self.since_us.store(0, Ordering::Release);
        }
    }

    /// Since `start`, and not zero.
    fn now_us(&self) -> u64 {
        micros(self.start.elapsed()).max(1)
    }

    fn owes_nothing(&self) -> bool {
        // Loaded first, because it grows, and is never more than what has begun.
        let sent = self.sent.load(Ordering::Acquire);
        self.owed.load(Ordering::Acquire) <= self.begun.load(Ordering::Acquire).wrapping_sub(sent) as isize
    }

    fn on_sent(&self) {
        self.sent.store(self.taken.load(Ordering::Acquire), Ordering::Release);
        if self.since_us.load(Ordering::Relaxed) == 0 {
            self.since_us.store(self.now_us(), Ordering::Release);
        }
    }

    /// Records that bytes which have come are about to be read. The time is set before `is_unread` is cleared, so that
    /// another thread always finds one of the two.
    fn on_read_begins(&self) {
        if self.is_unread.load(Ordering::Acquire) {
            self.note_sign_of_life();
            self.is_unread.store(false, Ordering::Release);
        }
    }

    fn on_read(&self) {
        self.note_sign_of_life();
        self.has_read.store(true, Ordering::Release);
    }

    fn note_sign_of_life(&self) {
        if self.since_us.load(Ordering::Relaxed) > 0 {
            self.since_us.store(self.now_us(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use tokio::{
        io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex},
        sync::oneshot::{Sender, channel},
        time::advance,
    };

    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    /// A connection to a server, and its task, which runs when a test says so.
    struct Line {
        transit: Arc<Transit>,
        client: Recorded<DuplexStream>,
        server: DuplexStream,
    }

    impl Line {
        /// A connection that was made a period ago.
        async fn open() -> Self {
            let (client, server) = duplex(64);
            let transit = Transit::new();
            advance(PERIOD).await;
            Self { client: Recorded::new(client, &transit), server, transit }
        }

        /// A call that waits for its reply.
        fn call(&self) -> (Sender<()>, Pin<Box<dyn Future<Output = bool>>>) {
            let (sender, reply) = channel();
            let transit = Arc::clone(&self.transit);
            let mut call: Pin<Box<dyn Future<Output = bool>>> =
                Box::pin(async move { transit.owes(reply).await.is_ok() });
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            (sender, call)
        }

        async fn send(&mut self) {
            self.transit.before_poll();
            self.client.write_all(b"PING").await.unwrap();
            self.transit.after_poll();
        }

        /// The server answers, the bytes are read, and `then` happens before the task has done its work.
        async fn answer(&mut self, then: impl FnOnce()) {
            self.server.write_all(b"PONG").await.unwrap();
            self.transit.before_poll();
            self.client.read_exact(&mut [0; 4]).await.unwrap();
            then();
            self.transit.after_poll();
        }

        async fn is_silent_after_a_period(&self) -> bool {
            advance(PERIOD).await;
            self.transit.is_silent_for(PERIOD)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_silent_from_a_request_until_bytes_come_whether_or_not_they_are_read() {
        let mut line = Line::open().await;
        let (reply, _call) = line.call();
        assert!(!line.is_silent_after_a_period().await, "nothing was sent");
        line.send().await;
        assert!(!line.transit.is_silent_for(PERIOD), "just sent");
        let (mut bytes, cx) = ([0; 4], &mut Context::from_waker(Waker::noop()));
        let mut read = Box::pin(line.client.read_exact(&mut bytes));
        assert!(read.as_mut().poll(cx).is_pending());
        advance(PERIOD).await;
        assert!(line.transit.is_silent_for(PERIOD), "nothing has come");
        line.server.write_all(b"PONG").await.unwrap();
        assert!(!line.transit.is_silent_for(PERIOD), "unread");
        assert!(read.as_mut().poll(cx).is_ready());
        drop(read);
        reply.send(()).unwrap();
        line.transit.after_poll();
        assert!(!line.is_silent_after_a_period().await && !line.transit.is_closed(), "read");
    }

    /// A stream that asks whether the server is silent while bytes that have come are read.
    struct Asks<S>(S, Arc<Transit>);

    impl<S: AsyncRead + Unpin> AsyncRead for Asks<S> {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let before = buf.filled().len();
            let is_silent = self.1.is_silent_for(PERIOD);
            let read = Pin::new(&mut self.0).poll_read(cx, buf);
            assert!(buf.filled().len() == before || !is_silent);
            read
        }
    }

    /// The task of the connection may run much later than the bytes have come, and other threads ask meanwhile.
    #[tokio::test(start_paused = true)]
    async fn law_14_a_server_is_not_silent_while_its_bytes_are_read() {
        let ((client, mut server), transit) = (duplex(64), Transit::new());
        advance(PERIOD).await;
        let mut client = Recorded::new(Asks(client, Arc::clone(&transit)), &transit);
        let mut bytes = [0; 4];
        let mut read = Box::pin(client.read_exact(&mut bytes));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(read.as_mut().poll(cx).is_pending());
        transit.on_sent();
        advance(PERIOD).await;
        assert!(transit.is_silent_for(PERIOD));
        server.write_all(b"PONG").await.unwrap();
        assert!(read.as_mut().poll(cx).is_ready());
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
        let mut line = Line::open().await;
        let [(first, _one), (second, _other)] = [line.call(), line.call()];
        line.send().await;
        for (reply, is_silent) in [(first, true), (second, false)] {
            line.answer(|| reply.send(()).unwrap()).await;
            assert!(!line.transit.is_silent_for(PERIOD), "just answered");
            assert_eq!(line.is_silent_after_a_period().await, is_silent, "the calls have not run since");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn law_14_a_call_that_begins_while_bytes_are_sent_is_not_owed_until_it_is_sent() {
        let mut line = Line::open().await;
        let (first, _one) = line.call();
        line.transit.before_poll();
        let (_second, _other) = line.call();
        line.client.write_all(b"PING").await.unwrap();
        line.answer(|| first.send(()).unwrap()).await;
        assert!(!line.is_silent_after_a_period().await, "the other call is not sent");
        line.send().await;
        assert!(line.is_silent_after_a_period().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_leaves_a_silent_server_silent_until_bytes_come() {
        let mut line = Line::open().await;
        let (_reply, call) = line.call();
        line.send().await;
        advance(PERIOD).await;
        drop(call);
        assert!(line.transit.is_silent_for(PERIOD));
        line.answer(|| ()).await;
        assert!(!line.is_silent_after_a_period().await);
    }

    #[tokio::test(start_paused = true)]
    async fn law_14_a_call_that_is_given_up_while_its_reply_is_read_owes_nothing() {
        let mut line = Line::open().await;
        let (_reply, call) = line.call();
        line.send().await;
        line.answer(|| drop(call)).await;
        assert!(!line.is_silent_after_a_period().await);
    }

    /// A full channel wakes a call to be sent.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_woken_to_be_sent_is_owed_until_its_reply_is_read() {
        let mut line = Line::open().await;
        let (transit, [(room, has_room), (reply, receiver)]) = (Arc::clone(&line.transit), [channel(), channel()]);
        let mut call = Box::pin(transit.owes(async { (has_room.await, receiver.await) }));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(cx).is_pending());
        room.send(()).unwrap();
        assert!(call.as_mut().poll(cx).is_pending());
        line.send().await;
        assert!(line.is_silent_after_a_period().await);
        line.answer(|| reply.send(()).unwrap()).await;
        assert!(!line.is_silent_after_a_period().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_has_its_reply_owes_nothing_and_leaves_the_others_owed() {
        let mut line = Line::open().await;
        let [(first, mut one), (_second, _other)] = [line.call(), line.call()];
        line.send().await;
        line.answer(|| {
            first.send(()).unwrap();
            assert!(one.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        })
        .await;
        assert!(line.is_silent_after_a_period().await);
    }
}
