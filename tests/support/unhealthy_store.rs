//! A store that falls ill and recovers when told to.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tollgate::{
    Check, Error, ErrorKind, Key, MemoryStore, Policy,
    failure::Breaker,
    store::{Answer, Store, Verdict},
};

/// A store whose health the test sets.
#[derive(Clone, Debug)]
pub(crate) struct Patient {
    health: Arc<Mutex<Health>>,
    sent: Arc<AtomicUsize>,
    breaker: Option<Breaker>,
    memory: MemoryStore,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Health {
    Answers,
    Fails(ErrorKind),
    /// Answers after so long.
    Late(Duration),
    Silent,
}

pub(crate) const AWAY: Health = Health::Fails(ErrorKind::Unavailable);

impl Patient {
    pub(crate) fn new(health: Health) -> Self {
        Self::with(health, Some(Breaker::default()))
    }

    pub(crate) fn with(health: Health, breaker: Option<Breaker>) -> Self {
        let health = Arc::new(Mutex::new(health));
        Self { health, sent: Arc::default(), breaker, memory: MemoryStore::new() }
    }

    /// Counts in `memory`.
    pub(crate) fn counting_in(self, memory: MemoryStore) -> Self {
        Self { memory, ..self }
    }

    pub(crate) fn becomes(&self, health: Health) {
        *self.health.lock().unwrap() = health;
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Store for Patient {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (this, check) = (self.clone(), check.clone());
        Answer::pending(async move {
            this.sent.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let health = *this.health.lock().unwrap();
            if let Health::Late(by) = health {
                tokio::time::sleep(by).await;
            }
            match health {
                Health::Answers | Health::Late(_) => match this.memory.check(&check) {
                    Answer::Ready(verdict) => verdict,
                    Answer::Pending(verdict) => verdict.await,
                },
                Health::Fails(kind) => Err(Error::new(kind, "as told")),
                Health::Silent => std::future::pending().await,
            }
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn breaker(&self) -> Option<Breaker> {
        self.breaker
    }
}
