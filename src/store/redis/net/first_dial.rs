//! The first dial of a server, for which checks may wait beyond their deadline, and how far a dial has come.
//!
//! A dial takes several round trips and perhaps a TLS handshake; a check takes one round trip. Without extra time the
//! first requests after each start would get no verdict.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{future::pending, net::SocketAddr, pin::pin, time::Duration};

use redis::RedisError;
use tokio::{sync::Notify, time::Instant};

use super::followed::Tenure;
use crate::runtime::{deadline::within, stalls::Begin};

/// The first dial of one pool. It is over when it has succeeded or failed, or when its time has passed.
#[derive(Clone, Debug)]
pub(crate) struct FirstDial(Arc<DialState>);

#[derive(Debug)]
struct DialState {
    begin: Option<Begin>,
    limit: Duration,
    has_ended: AtomicBool,
    ended: Notify,
}

impl FirstDial {
    /// Creates a first dial that begins now, on the current runtime.
    pub(crate) fn begin(limit: Duration) -> Self {
        let (has_ended, ended) = (AtomicBool::new(false), Notify::new());
        Self(Arc::new(DialState { begin: Begin::now(limit), limit, has_ended, ended }))
    }

    /// Creates a first dial that is over already, so that checks do not wait for it.
    pub(crate) fn over() -> Self {
        let (has_ended, ended) = (AtomicBool::new(true), Notify::new());
        Self(Arc::new(DialState { begin: None, limit: Duration::ZERO, has_ended, ended }))
    }

    /// Records the end of a dial. Later dials change nothing.
    pub(crate) fn end(&self) {
        if !self.0.has_ended.swap(true, Ordering::AcqRel) {
            self.0.ended.notify_waiters();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() || self.left().is_zero()
    }

    /// Waits until the dial is over. Returns whether the dial ended in time.
    pub(crate) async fn wait(&self) -> bool {
        let mut ended = pin!(self.0.ended.notified());
        // From here on no notification is missed.
        ended.as_mut().enable();
        if !self.has_ended() {
            let _ = within(self.left(), ended).await;
        }
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    fn left(&self) -> Duration {
        let DialState { begin, limit, .. } = &*self.0;
        begin.map_or(Duration::ZERO, |begin| limit.saturating_sub(begin.running(Instant::now())))
    }
}

/// The address of a server with TLS that has accepted the connection of a dial, so that only the handshake is missing.
///
/// A server computes handshakes one after the other, so it may be late without a packet being lost. The progress of a
/// dial without TLS is not recorded: its handshake costs the server nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct DialProgress {
    server: Arc<OnceLock<SocketAddr>>,
    /// A sentinel that has accepted a connection.
    sentinel: Arc<OnceLock<SocketAddr>>,
    /// Whether a sentinel has answered.
    is_named: Arc<AtomicBool>,
    /// The tenure in which the dial of a master has begun.
    tenure: Arc<OnceLock<Tenure>>,
    /// The error of the servers that most sentinels have named, if all of these have failed.
    answer: Arc<Mutex<Option<RedisError>>>,
}

impl DialProgress {
    /// The progress of the part of this dial that asks a sentinel for the server.
    pub(crate) fn of_sentinel(&self) -> Self {
        Self { server: Arc::clone(&self.sentinel), ..Self::default() }
    }

    /// Records that the server at `address` has accepted the connection.
    #[cfg(feature = "tls")]
    pub(crate) fn is_accepted(&self, address: SocketAddr) {
        // A dial whose handshake is repeated has recorded it before.
        let _ = self.server.set(address);
    }

    /// Records which master the store follows while the dial begins.
    pub(crate) fn begins_in(&self, tenure: Tenure) {
        let _ = self.tenure.set(tenure);
    }

    /// Waits until the store follows another master than when the dial began.
    pub(crate) async fn is_overtaken(&self) {
        match self.tenure.get() {
            Some(tenure) => tenure.end().await,
            None => pending().await,
        }
    }

    /// Records that a sentinel has named the server.
    pub(crate) fn is_named(&self) {
        self.is_named.store(true, Ordering::Relaxed);
    }

    /// Records the error of the servers that most sentinels have named, or `None` unless all of these have failed.
    pub(crate) fn set_answer(&self, error: Option<RedisError>) {
        *self.latest_answer() = error;
    }

    /// The error of the servers that most sentinels have named. The dial goes on, because other sentinels have not
    /// answered yet.
    pub(crate) fn answer(&self) -> Option<RedisError> {
        self.latest_answer().clone()
    }

    fn latest_answer(&self) -> MutexGuard<'_, Option<RedisError>> {
        // The value is replaced as a whole, so a poisoned lock is usable.
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_in_handshake(&self) -> bool {
        self.server().is_some()
    }

    /// The server whose part of the handshake is missing: a sentinel, until one has named the master.
    pub(crate) fn server(&self) -> Option<SocketAddr> {
        let sentinel = || self.sentinel.get().filter(|_| !self.is_named.load(Ordering::Relaxed));
        self.server.get().or_else(sentinel).copied()
    }
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests {
    use super::*;

    #[test]
    fn a_dial_waits_for_the_handshake_of_a_sentinel_until_one_names_the_master_and_then_for_that_of_the_master() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let dial = DialProgress::default();
        assert!(!dial.is_in_handshake());
        dial.of_sentinel().is_accepted(address(26_379));
        assert_eq!(dial.server(), Some(address(26_379)));
        dial.is_named();
        assert!(!dial.is_in_handshake());
        dial.is_accepted(address(6_379));
        assert_eq!(dial.server(), Some(address(6_379)));
    }
}
