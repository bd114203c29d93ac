//! A store that a test makes fail, answer late or not answer, and recover.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, MemoryStore, Policy, failure::BreakerSettings};

/// A pending store whose health the test sets.
#[derive(Clone, Debug)]
pub(crate) struct UnhealthyStore {
    health: Arc<Mutex<Health>>,
    sent: Arc<AtomicUsize>,
    breaker: Option<BreakerSettings>,
    deadline: Duration,
    memory: MemoryStore,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Health {
    Healthy,
    Fails(ErrorKind),
    /// Answers after the duration.
    Slow(Duration),
    /// Never answers.
    Silent,
}

pub(crate) const UNAVAILABLE: Health = Health::Fails(ErrorKind::Unavailable);

impl UnhealthyStore {
    /// A store with the default settings of the breaker.
    pub(crate) fn new(health: Health) -> Self {
        Self::with_breaker(health, Some(BreakerSettings::default()))
    }

    pub(crate) fn with_breaker(health: Health, breaker: Option<BreakerSettings>) -> Self {
        let health = Arc::new(Mutex::new(health));
        let memory = MemoryStore::new();
        Self { health, sent: Arc::default(), breaker, deadline: memory.deadline(), memory }
    }

    /// Replaces the deadline, that of stores that set none.
    pub(crate) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Replaces the memory store that holds the counts.
    pub(crate) fn counting_in(self, memory: MemoryStore) -> Self {
        Self { memory, ..self }
    }

    pub(crate) fn set_health(&self, health: Health) {
        *self.health.lock().unwrap() = health;
    }

    /// The number of checks that the store has received.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Store for UnhealthyStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (this, check) = (self.clone(), check.clone());
        Answer::pending(async move {
            this.sent.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let health = *this.health.lock().unwrap();
            if let Health::Slow(by) = health {
                tokio::time::sleep(by).await;
            }
            match health {
                Health::Healthy | Health::Slow(_) => match this.memory.check(&check) {
                    Answer::Ready(verdict) => verdict,
                    Answer::Pending(verdict) => verdict.await,
                },
                Health::Fails(kind) => Err(Error::new(kind, "the test made the store fail")),
                Health::Silent => std::future::pending().await,
            }
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn has_alternatives(&self) -> bool {
        true
    }

    fn breaker(&self) -> Option<BreakerSettings> {
        self.breaker
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }
}
