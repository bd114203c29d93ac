//! A client of one limiter, and what it gets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tollgate::{FailurePolicy, Limiter, MemoryStore, Policy, RedisStore, observe};

use super::load::{BETWEEN_REQUESTS, INSTANCES, LIMIT, SLICE, WINDOW};
use crate::{Result, server::Server};

/// A limiter with a failure policy, and a record of its client and its breaker.
#[derive(Clone)]
pub struct Watched {
    pub policy: FailurePolicy,
    pub limiter: Limiter,
    record: Arc<Mutex<Record>>,
}

#[derive(Default)]
struct Record {
    start: Option<Instant>,
    /// When each request was sent, and the status of its response.
    requests: Vec<(Duration, u16)>,
    states: Vec<(Duration, &'static str)>,
}

/// The requests of one slice.
#[derive(Clone, Copy, Default)]
pub struct Slice {
    pub passed: u32,
    pub denied: u32,
    pub closed: u32,
}

impl Watched {
    pub fn new(server: &Server, policy: FailurePolicy) -> Result<Self> {
        let store = RedisStore::builder().prefix(format!("{policy:?}:")).open(server.endpoint().url())?;
        let record = Arc::new(Mutex::new(Record::default()));
        let of_observer = Arc::clone(&record);
        let limiter = Limiter::new(store)
            .with_local_fallback(MemoryStore::new(), INSTANCES)
            .without_notices()
            .with_observer(observe::from_fn(move |event| {
                if event.name() == "breaker_change" {
                    let mut record = lock(&of_observer);
                    let at = record.start.map_or(Duration::ZERO, |start| start.elapsed());
                    record.states.push((at, event.outcome()));
                }
            }));
        Ok(Self { policy, limiter, record })
    }

    pub fn name(&self) -> &'static str {
        match self.policy {
            FailurePolicy::Open => "fail_open()",
            FailurePolicy::Closed => "fail_closed()",
            _ => "fail_local()",
        }
    }

    /// Sends requests until `end`, whether or not earlier ones have been answered.
    pub async fn send(self, start: Instant, end: Duration) {
        lock(&self.record).start = Some(start);
        // The limit is a number that a policy may have.
        let Ok(policy) = Policy::new("per-client", LIMIT, WINDOW) else { return };
        let mut next = Duration::ZERO;
        while next < end {
            tokio::time::sleep_until(start + next).await;
            let (watched, policy) = (self.clone(), policy.clone());
            tokio::spawn(async move {
                let check = watched.limiter.check("client", &policy, 1);
                let check = if watched.policy == FailurePolicy::Local { check.fail_local() } else { check };
                let answer = watched.policy.resolve(check.await).into_result();
                let status = answer.map_or_else(|denial| denial.status().as_u16(), |()| 200);
                lock(&watched.record).requests.push((next, status));
            });
            next += BETWEEN_REQUESTS;
        }
    }

    /// The requests by the slice in which they were sent.
    pub fn slices(&self, end: Duration) -> Vec<Slice> {
        let count = |time: Duration| (time.as_secs_f64() / SLICE.as_secs_f64() + 1e-6) as usize;
        let mut slices = vec![Slice::default(); count(end)];
        for (sent, status) in &lock(&self.record).requests {
            let Some(slice) = slices.get_mut(count(*sent)) else { continue };
            match status {
                200 => slice.passed += 1,
                429 => slice.denied += 1,
                _ => slice.closed += 1,
            }
        }
        slices
    }

    /// The states of the breaker after the first, and when each began.
    pub fn states(&self) -> Vec<(Duration, &'static str)> {
        lock(&self.record).states.clone()
    }
}

fn lock(record: &Mutex<Record>) -> std::sync::MutexGuard<'_, Record> {
    // Each change of the record is whole.
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
