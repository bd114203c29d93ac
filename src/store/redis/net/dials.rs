//! The dials of one connection: the next one begins beside one that takes long.
//!
//! The packets of a slow dial may be lost, so another one begins: at once if the server answers others meanwhile. Or
//! the server is distant or busy, so the slow dial goes on. Of several, the oldest and the newest go on: the oldest is
//! the first in the server's queue, and the newest is the one whose packets arrive after an outage. A dial that was
//! given up would still be computed by a server that is busy with handshakes, so a fleet that gives up its dials can
//! keep the server busy for ever.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::{io, task::Poll, time::Duration};

use redis::{RedisError, RedisResult};

use super::backoff::{Backoff, MAX_PAUSE};
use super::{error, first_dial::DialProgress};
use crate::runtime::deadline::within;

/// The longest time of one dial. The kernel gives up a server that does not acknowledge within seconds, so this is the
/// time for handshakes of a whole fleet.
const LONGEST_DIAL: Duration = Duration::from_secs(300);

/// Dials in progress, the oldest first. They are no tasks, so that an outage leaves no tasks behind.
pub(super) struct Dials<C>(Vec<Dial<C>>);

struct Dial<C> {
    ends: Pin<Box<dyn Future<Output = RedisResult<C>> + Send>>,
    progress: DialProgress,
}

/// What the next dial has led to.
pub(super) enum Next<C> {
    Connected(C),
    Failed(RedisError),
    /// It takes long, and goes on. The error is that of the master, if only sentinels have not answered yet.
    Slow(RedisError),
}

impl<C> Dials<C> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Waits for the pause, then begins a dial and waits until it ends or takes long. Returns earlier if another dial
    /// ends. `until_lost` ends when the newest dial must be lost, and the pause with it.
    pub(super) async fn next<F, L>(
        &mut self,
        backoff: &Mutex<Backoff>,
        until_lost: impl FnOnce(DialProgress) -> L,
        dial: impl FnOnce(DialProgress) -> F,
    ) -> Next<C>
    where
        F: Future<Output = RedisResult<C>> + Send + 'static,
        L: Future<Output = ()> + Send,
    {
        // A panic under the lock leaves a valid backoff.
        let lock = || backoff.lock().unwrap_or_else(PoisonError::into_inner);
        // Two statements: the lock of the first one must have ended.
        let pause = lock().pause();
        let may_find_loss = lock().may_find_loss();
        let newest = self.0.last().filter(|_| may_find_loss).map(|dial| dial.progress.clone());
        let loss = async {
            match newest {
                Some(newest) => until_lost(newest).await,
                None => pending().await,
            }
            lock().found_loss();
        };
        let result = match self.first_result(pause, loss).await {
            Some(result) => Some(result),
            None => {
                lock().dial_starts();
                self.begin(dial);
                self.first_result(MAX_PAUSE, pending()).await
            }
        };
        match result {
            Some(Ok(connection)) => {
                lock().succeeded();
                Next::Connected(connection)
            }
            Some(Err(error)) if !error.is_timeout() => Next::Failed(error),
            // A sentinel that never answers must not hide what the master has answered.
            _ => match self.0.last().and_then(|dial| dial.progress.answer()) {
                Some(error) if error::is_misconfigured(&error) => {
                    lock().was_refused();
                    Next::Slow(error)
                }
                answer => {
                    match answer.is_none() && self.is_in_handshake() {
                        true => lock().was_slow(),
                        false => lock().failed(),
                    }
                    Next::Slow(timed_out(MAX_PAUSE))
                }
            },
        }
    }

    fn begin<F>(&mut self, dial: impl FnOnce(DialProgress) -> F)
    where
        F: Future<Output = RedisResult<C>> + Send + 'static,
    {
        self.0.truncate(1);
        let progress = DialProgress::default();
        let dial = dial(progress.clone());
        let ends = Box::pin(async { within(LONGEST_DIAL, dial).await.unwrap_or_else(|| Err(timed_out(LONGEST_DIAL))) });
        self.0.push(Dial { ends, progress });
    }

    /// The result of the dial that ends first, or `None` after `time` or a `loss`.
    async fn first_result(&mut self, time: Duration, loss: impl Future<Output = ()>) -> Option<RedisResult<C>> {
        let mut loss = pin!(loss);
        let ended = poll_fn(|cx| {
            let ready = self.0.iter_mut().enumerate().find_map(|(index, dial)| match dial.ends.as_mut().poll(cx) {
                Poll::Ready(result) => Some((index, result)),
                Poll::Pending => None,
            });
            let Some((index, result)) = ready else { return loss.as_mut().poll(cx).map(|()| None) };
            drop(self.0.remove(index));
            Poll::Ready(Some(result))
        });
        within(time, ended).await.flatten()
    }

    /// Whether the newest dial waits for the server's part of a handshake.
    fn is_in_handshake(&self) -> bool {
        self.0.last().is_some_and(|dial| dial.progress.is_in_handshake())
    }
}

fn timed_out(time: Duration) -> RedisError {
    RedisError::from(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {time:?}")))
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Arc};

    use tokio::{
        sync::{Notify, oneshot},
        task::JoinSet,
        time::{Instant, sleep, timeout},
    };

    use super::*;
    use crate::store::redis::net::dialer::until_answered;

    /// A server that computes one handshake after the other, also those of clients that have gone. A knock has its
    /// place among them, and takes no time.
    struct Server {
        waiting: Mutex<VecDeque<(Duration, oneshot::Sender<()>)>>,
        arrived: Notify,
        handshake: Duration,
        is_in_order: bool,
    }

    impl Server {
        /// Returns the number of handshakes that were computed in vain.
        async fn run(self: Arc<Self>) -> usize {
            let (mut wasted, mut random) = (0, 1_u64);
            loop {
                let next = {
                    let mut waiting = self.waiting.lock().unwrap();
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let index = if self.is_in_order { 0 } else { (random >> 33) as usize % waiting.len().max(1) };
                    waiting.remove(index)
                };
                match next {
                    Some((work, client)) => {
                        if !work.is_zero() {
                            sleep(work).await;
                        }
                        wasted += usize::from(client.send(()).is_err() && !work.is_zero());
                    }
                    None if timeout(Duration::from_secs(60), self.arrived.notified()).await.is_err() => return wasted,
                    None => {}
                }
            }
        }

        /// Returns whether the server has answered.
        async fn ask(&self, work: Duration) -> bool {
            let (done, answer) = oneshot::channel();
            self.waiting.lock().unwrap().push_back((work, done));
            self.arrived.notify_one();
            answer.await.is_ok()
        }

        async fn shake_hands(self: Arc<Self>, progress: DialProgress) -> RedisResult<()> {
            progress.is_accepted(([127, 0, 0, 1], 6379).into());
            match self.ask(self.handshake).await {
                true => Ok(()),
                false => Err(timed_out(LONGEST_DIAL)),
            }
        }
    }

    /// Dials until all clients are connected. Returns the time that it took, and the handshakes in vain.
    async fn fleet(clients: usize, handshake: Duration, is_in_order: bool) -> (Duration, usize) {
        let server = Server { waiting: Mutex::default(), arrived: Notify::new(), handshake, is_in_order };
        let server = Arc::new(server);
        let wasted = tokio::spawn(Arc::clone(&server).run());
        let start = Instant::now();
        let mut connected = JoinSet::new();
        for _ in 0..clients {
            let server = Arc::clone(&server);
            connected.spawn(async move {
                let (mut dials, backoff) = (Dials::new(), Mutex::new(Backoff::default()));
                loop {
                    let dial = |progress| Arc::clone(&server).shake_hands(progress);
                    let loss = |_| until_answered(|| server.ask(Duration::ZERO));
                    if let Next::Connected(()) = dials.next(&backoff, loss, dial).await {
                        return;
                    }
                }
            });
        }
        while connected.join_next().await.is_some() {}
        (start.elapsed(), wasted.await.unwrap())
    }

    /// Clients that dial once and wait are all connected after the time of their handshakes.
    #[tokio::test(start_paused = true)]
    async fn a_fleet_whose_connections_were_cut_is_back_within_twice_the_time_of_its_handshakes() {
        for (clients, handshake_us) in [(1, 25_000), (20, 25_000), (120, 25_000), (200, 5_000), (2_500, 1_000)] {
            let handshake = Duration::from_micros(handshake_us);
            // Any order but that of their arrival takes the simulation long for many clients.
            for is_in_order in if clients > 200 { &[true][..] } else { &[true, false] } {
                let (time, floor) = row(clients, handshake, *is_in_order).await;
                // Redis computes them about in the order of their arrival. Any other order is at most twice as slow.
                let most = if *is_in_order { floor } else { 2 * floor };
                assert!(time <= most + Duration::from_millis(10), "{clients}: {time:?} of {floor:?}");
            }
        }
    }

    /// The time of a fleet, and of its handshakes. Prints them with the handshakes in vain.
    async fn row(clients: usize, handshake: Duration, is_in_order: bool) -> (Duration, Duration) {
        let (time, wasted) = fleet(clients, handshake, is_in_order).await;
        let floor = handshake * u32::try_from(clients).unwrap();
        let order = if is_in_order { "in order" } else { "in any order" };
        println!("{clients} clients, {handshake:?} {order}: {time:?} of {floor:?}, {wasted} handshakes in vain");
        (time, floor)
    }

    /// A proxy accepts connections during an outage, and loses what they send for ever. Or no packet arrives at all.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_was_lost_in_an_outage_is_followed_by_another_one_within_half_a_second() {
        for (outage_ms, is_accepted) in [500, 900, 3_000, 10_000, 60_000].map(|ms| [(ms, true), (ms, false)]).concat() {
            let end = Instant::now() + Duration::from_millis(outage_ms);
            let answer = move || async move {
                if Instant::now() < end {
                    pending().await
                }
                true
            };
            let (mut dials, backoff) = (Dials::new(), Mutex::new(Backoff::default()));
            let dial = |progress: DialProgress| {
                if is_accepted {
                    progress.is_accepted(([127, 0, 0, 1], 6379).into());
                }
                async move { answer().await.then_some(()).ok_or_else(|| timed_out(LONGEST_DIAL)) }
            };
            // As `dialer::until_lost`.
            let loss = |dial: DialProgress| async move {
                match dial.server() {
                    Some(_) => until_answered(answer).await,
                    None => pending().await,
                }
            };
            while !matches!(dials.next(&backoff, loss, dial).await, Next::Connected(())) {}
            let late = end.elapsed();
            assert!(late <= Duration::from_millis(500), "{late:?} after an outage of {outage_ms} ms");
        }
    }

    /// Otherwise a fleet would dial a busy server at full rate as soon as its first dials are given up.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_is_given_up_leaves_the_pauses_as_long_as_they_are() {
        let (mut dials, backoff, start) = (Dials::<()>::new(), Mutex::new(Backoff::default()), Instant::now());
        let dial = |progress: DialProgress| {
            progress.is_accepted(([127, 0, 0, 1], 6379).into());
            pending()
        };
        while start.elapsed() < LONGEST_DIAL + Duration::from_secs(60) {
            assert!(matches!(dials.next(&backoff, |_| pending::<()>(), dial).await, Next::Slow(_)));
            assert!(backoff.lock().unwrap().patience(MAX_PAUSE) > MAX_PAUSE);
        }
    }

    /// The handshake that was missing has ended, and what is missing is an answer of another sentinel.
    #[tokio::test(start_paused = true)]
    async fn beside_a_silent_sentinel_the_pauses_are_those_of_what_the_master_has_answered() {
        for (kind, is_refused) in [(redis::ErrorKind::Io, false), (redis::ErrorKind::AuthenticationFailed, true)] {
            let (mut dials, backoff) = (Dials::<()>::new(), Mutex::new(Backoff::default()));
            let dial = |progress: DialProgress| {
                progress.is_accepted(([127, 0, 0, 1], 6379).into());
                progress.set_answer(Some(RedisError::from((kind, "the answer"))));
                pending()
            };
            let start = Instant::now();
            for _ in 0..50 {
                let Next::Slow(error) = dials.next(&backoff, |_| pending::<()>(), dial).await else { panic!("slow") };
                assert_eq!(error.to_string().contains("the answer"), is_refused, "{error}");
            }
            assert_eq!(start.elapsed() > Duration::from_secs(60), is_refused, "{:?}", start.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    #[ignore = "takes a minute of processor time without optimisation: tests/run --long"]
    async fn long_ten_thousand_clients_whose_connections_were_cut_are_back_after_the_time_of_their_handshakes() {
        let (time, floor) = row(10_000, Duration::from_millis(1), true).await;
        // A stall of this test's process makes the clients wait longer.
        assert!(time <= floor + Duration::from_secs(1), "{time:?} of {floor:?}");
    }
}
