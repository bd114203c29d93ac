//! Waiting for units, on a store in memory whose clock follows tokio's paused time.

mod at_once;
mod crowd;
mod dropping;
mod failure;
mod further;
mod holds;
mod order;
mod shutdown;
mod too_long;

use std::sync::{Arc, Mutex};
use std::{future::Future, time::Duration};

use tokio::{task::JoinHandle, time::Instant};
use tollgate::{Algorithm, Decision, Error, Limiter, MemoryStore, Policy, clock::TokioClock};

pub(crate) const KEY: &str = "upstream";
const SECOND: Duration = Duration::from_secs(1);

fn limiter() -> Limiter {
    Limiter::new(MemoryStore::new().with_clock(TokioClock::new()))
}

/// A bucket of one unit that is refilled `limit` times a second.
fn bucket(limit: u64) -> Policy {
    Policy::per_second("p", limit).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1)
}

/// The waiters whose calls have ended, in this order, with the time and the result.
#[derive(Clone, Debug, Default)]
struct Ended(Arc<Mutex<Vec<End>>>);

type End = (usize, Instant, Result<Decision, Error>);

impl Ended {
    fn admitted(&self) -> Vec<usize> {
        let ended = self.0.lock().unwrap();
        let admitted = ended.iter().filter(|(_, _, result)| result.as_ref().is_ok_and(Decision::is_allowed));
        admitted.map(|(waiter, ..)| *waiter).collect()
    }

    fn last_at(&self) -> Instant {
        self.0.lock().unwrap().last().unwrap().1
    }

    /// Starts a waiter, which takes its place in the queue before this returns.
    async fn start(
        &self,
        waiter: usize,
        acquired: impl Future<Output = Result<Decision, Error>> + Send + 'static,
    ) -> JoinHandle<()> {
        let ended = Arc::clone(&self.0);
        let task = tokio::spawn(async move {
            let result = acquired.await;
            ended.lock().unwrap().push((waiter, Instant::now(), result));
        });
        tokio::task::yield_now().await;
        task
    }
}
