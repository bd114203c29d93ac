//! Calls to a server that got no reply, counted for all runtimes of a process.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::time::Instant;

use crate::clock::micros;

/// Unanswered calls in a row after which connections count as half open: the other end has gone without closing them.
const MAX_UNANSWERED: u32 = 3;

/// The servers of a store. The pools of all runtimes share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers(Arc<Mutex<Vec<Server>>>);

/// A server that some pool dials.
#[derive(Debug)]
struct Server {
    name: String,
    silence: Weak<ServerSilence>,
}

/// What the pools of all runtimes share about one server.
///
/// An open breaker lets one call pass now and then, on any runtime. Counts by runtime would need some of these calls on
/// each of them to detect a network that has lost all connections.
#[derive(Debug, Default)]
pub(super) struct ServerSilence {
    /// When the first pool was opened. All times are counted from here.
    start: OnceLock<Instant>,
    pub(super) timeouts: TimeoutStreak,
    pub(super) lost: Lost,
}

/// Unanswered calls in a row, each sent after the previous one was given up. Calls in flight at the same time met the
/// same stall and count once.
#[derive(Debug, Default)]
pub(super) struct TimeoutStreak {
    unanswered: AtomicU32,
    given_up_us: AtomicU64,
}

/// Connections that were made before this time count as half open.
#[derive(Debug, Default)]
pub(super) struct Lost {
    before_us: AtomicU64,
}

impl Servers {
    /// What is known about the server with this name.
    pub(super) fn server(&self, name: &str) -> Arc<ServerSilence> {
        // A panic under the lock leaves a valid list.
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|server| server.silence.strong_count() > 0);
        let known = servers.iter().find(|server| server.name == name).and_then(|server| server.silence.upgrade());
        known.unwrap_or_else(|| {
            let silence = Arc::default();
            servers.push(Server { name: name.to_owned(), silence: Arc::downgrade(&silence) });
            silence
        })
    }
}

impl ServerSilence {
    pub(super) fn now_us(&self) -> u64 {
        micros(self.start.get_or_init(Instant::now).elapsed())
    }
}

impl TimeoutStreak {
    pub(super) fn reset(&self) {
        // Threads share the counter, which is nearly always 0. Reading it first avoids most writes.
        if self.unanswered.load(Ordering::Relaxed) > 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a call that was sent and given up at these times. Returns whether the streak is long enough to give up.
    pub(super) fn add(&self, sent_us: u64, now_us: u64) -> bool {
        let last_us = self.given_up_us.load(Ordering::Acquire);
        let counts = sent_us > last_us
            // A call that loses the race was in flight at the same time and met the same stall.
            && self.given_up_us.compare_exchange(last_us, now_us, Ordering::AcqRel, Ordering::Acquire).is_ok();
        counts && self.unanswered.fetch_add(1, Ordering::AcqRel) + 1 >= MAX_UNANSWERED
    }
}

impl Lost {
    /// Whether a connection that was made at this time counts as half open.
    pub(super) fn has(&self, born_us: u64) -> bool {
        born_us < self.before_us.load(Ordering::Acquire)
    }

    pub(super) fn all_before(&self, sent_us: u64) {
        self.before_us.fetch_max(sent_us, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::net::{address::Address, endpoint::Security};

    #[test]
    fn the_pools_of_a_server_share_what_they_know_and_those_of_two_servers_do_not() {
        let servers = Servers::default();
        let server = |url| servers.server(&Address::server(url, &Security::default()).unwrap().name());
        let (one, other) = (server("redis://10.0.0.1"), server("redis://10.0.0.2"));
        assert!(!Arc::ptr_eq(&one, &other) && Arc::ptr_eq(&one, &server("redis://10.0.0.1")));
        drop(one);
        let again = server("redis://10.0.0.1");
        assert!(Arc::ptr_eq(&again, &server("redis://10.0.0.1")) && Arc::ptr_eq(&other, &server("redis://10.0.0.2")));
    }

    #[test]
    fn a_call_that_is_sent_when_another_one_is_given_up_has_met_the_same_stall() {
        let (streak, lost) = (TimeoutStreak::default(), Lost::default());
        assert!(!streak.add(1, 5) && !streak.add(5, 6) && !streak.add(7, 8) && streak.add(9, 10));
        lost.all_before(9);
        assert!(lost.has(8) && !lost.has(9));
    }
}
