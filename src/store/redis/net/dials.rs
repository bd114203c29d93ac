//! The dials of one connection: the next one begins beside one that takes long.
//!
//! The packets of a slow dial may be lost, so another one begins. Or the server is distant or busy, so the slow dial
//! goes on. Of several, the oldest and the newest go on: the oldest is the first in the server's queue, and the newest
//! is the one whose packets arrive after an outage. A dial that was given up would still be computed by a server that
//! is busy with handshakes, so a fleet that gives up its dials can keep the server busy for ever.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use redis::{RedisError, RedisResult};

use super::{
    backoff::{Backoff, MAX_PAUSE},
    progress::DialProgress,
};
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
    /// It takes long, and goes on.
    Slow(RedisError),
}

impl<C> Dials<C> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Waits for the pause, then begins a dial and waits until it ends or takes long. Returns earlier if another dial
    /// ends.
    pub(super) async fn next<F>(&mut self, backoff: &Mutex<Backoff>, dial: impl FnOnce(DialProgress) -> F) -> Next<C>
    where
        F: Future<Output = RedisResult<C>> + Send + 'static,
    {
        // A panic under the lock leaves a valid backoff.
        let lock = || backoff.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = lock().pause();
        let result = match self.first_result(pause).await {
            Some(result) => Some(result),
            None => {
                lock().dial_starts();
                self.begin(dial);
                self.first_result(MAX_PAUSE).await
            }
        };
        match result {
            Some(Ok(connection)) => {
                lock().succeeded();
                Next::Connected(connection)
            }
            Some(Err(error)) if !error.is_timeout() => Next::Failed(error),
            _ => {
                match self.is_in_handshake() {
                    true => lock().was_slow(),
                    false => lock().failed(),
                }
                Next::Slow(timed_out(MAX_PAUSE))
            }
        }
    }

    fn begin<F>(&mut self, dial: impl FnOnce(DialProgress) -> F)
    where
        F: Future<Output = RedisResult<C>> + Send + 'static,
    {
        if self.0.len() > 1 {
            self.0.truncate(1);
        }
        let progress = DialProgress::default();
        let dial = dial(progress.clone());
        let ends = Box::pin(async { within(LONGEST_DIAL, dial).await.unwrap_or_else(|| Err(timed_out(LONGEST_DIAL))) });
        self.0.push(Dial { ends, progress });
    }

    /// The result of the dial that ends first, or `None` after `time`.
    async fn first_result(&mut self, time: Duration) -> Option<RedisResult<C>> {
        let ended = poll_fn(|cx| {
            let ready = self.0.iter_mut().enumerate().find_map(|(index, dial)| match dial.ends.as_mut().poll(cx) {
                Poll::Ready(result) => Some((index, result)),
                Poll::Pending => None,
            });
            let Some((index, result)) = ready else { return Poll::Pending };
            drop(self.0.remove(index));
            Poll::Ready(result)
        });
        within(time, ended).await
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

    /// A server that computes one handshake after the other, also those of clients that have gone.
    struct Server {
        waiting: Mutex<VecDeque<oneshot::Sender<()>>>,
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
                    Some(client) => {
                        sleep(self.handshake).await;
                        wasted += usize::from(client.send(()).is_err());
                    }
                    None if timeout(Duration::from_secs(60), self.arrived.notified()).await.is_err() => return wasted,
                    None => {}
                }
            }
        }

        async fn shake_hands(self: Arc<Self>, progress: DialProgress) -> RedisResult<()> {
            let (done, computed) = oneshot::channel();
            self.waiting.lock().unwrap().push_back(done);
            self.arrived.notify_one();
            progress.is_accepted();
            computed.await.map_err(|_| timed_out(LONGEST_DIAL))
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
                    if let Next::Connected(()) = dials.next(&backoff, dial).await {
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

    #[tokio::test(start_paused = true)]
    #[ignore = "takes a minute of processor time without optimisation: tests/run --long"]
    async fn long_ten_thousand_clients_whose_connections_were_cut_are_back_after_the_time_of_their_handshakes() {
        let (time, floor) = row(10_000, Duration::from_millis(1), true).await;
        // A stall of this test's process makes the clients wait longer.
        assert!(time <= floor + Duration::from_secs(1), "{time:?} of {floor:?}");
    }
}
