//! Stores, services and helpers that several test areas share.
#![allow(dead_code, missing_debug_implementations, unreachable_pub, clippy::unwrap_used)]

pub mod alternatives;
pub mod app;
pub mod bans;
pub mod breaking;
pub mod counting;
pub mod forecast;
pub mod growing_bans;
pub mod holds;
pub mod http;
pub mod log;
pub mod observed;
pub mod random;
pub mod recorder;
pub mod scrape;
pub mod seed;
pub mod stopwatch;
pub mod unhealthy_store;

use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Algorithm, Check, Decision, Error, ErrorKind, Key, MemoryStore, Policy};

/// Asserts that the message of an error contains `text`.
#[track_caller]
pub fn says(error: impl Display, text: &str) {
    let message = error.to_string();
    assert!(message.contains(text), "{text:?} is not in: {message}");
}

/// All algorithms.
pub const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::SlidingWindowLog, Algorithm::TokenBucket];

/// A store that fails every check and reset with [`ErrorKind::Unavailable`].
#[derive(Debug)]
pub struct DownStore;

impl Store for DownStore {
    fn check(&self, _: &Check) -> Answer<Verdict> {
        Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "SECRET-STORE-TEXT")))
    }

    fn reset(&self, _: &Key, _: &Policy) -> Answer<bool> {
        Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "SECRET-STORE-TEXT")))
    }
}

/// A memory store whose checks fail while [`FlakyStore::fail`] has set an error.
#[derive(Clone, Debug)]
pub struct FlakyStore {
    store: MemoryStore,
    failure: Arc<Mutex<Option<Error>>>,
}

impl FlakyStore {
    /// Sets the error of the following checks; `None` lets the store answer.
    pub fn fail(&self, failure: Option<Error>) {
        *self.failure.lock().unwrap() = failure;
    }
}

impl Default for FlakyStore {
    fn default() -> Self {
        Self { store: MemoryStore::new(), failure: Arc::default() }
    }
}

impl Store for FlakyStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        match self.failure.lock().unwrap().clone() {
            None => self.store.check(check),
            Some(error) => Answer::Ready(Err(error)),
        }
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }
}

/// A store that accepts checks and never answers.
#[derive(Debug)]
pub struct SilentStore;

impl Store for SilentStore {
    fn check(&self, _: &Check) -> Answer<Verdict> {
        Answer::pending(std::future::pending())
    }

    fn reset(&self, _: &Key, _: &Policy) -> Answer<bool> {
        Answer::pending(std::future::pending())
    }
}

/// Wraps a store so that its checks are pending at first, as those of a networked store are.
#[derive(Debug)]
pub struct PendingStore<S>(pub S);

impl<S: Store + Clone> Store for PendingStore<S> {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (store, check) = (self.0.clone(), check.clone());
        Answer::pending(async move {
            tokio::task::yield_now().await;
            match store.check(&check) {
                Answer::Ready(result) => result,
                Answer::Pending(result) => result.await,
            }
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn deadline(&self) -> Duration {
        self.0.deadline()
    }
}

/// A policy of `limit` units a minute.
pub fn per_minute(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}

/// The time of the verdict, in microseconds since the Unix epoch.
pub fn time_us(decision: &Decision) -> Option<u64> {
    let since_epoch = decision.time()?.duration_since(UNIX_EPOCH).unwrap();
    Some(u64::try_from(since_epoch.as_micros()).unwrap())
}
