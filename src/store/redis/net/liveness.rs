//! Whether a connection is alive, judged by the calls that got no reply.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::followed::Tenure;
use crate::clock::micros;

/// Unanswered calls in a row after which a connection counts as half open: the other end has gone without closing the
/// connection.
const MAX_UNANSWERED: u32 = 3;
/// A connection that breaks at a lower age counts as a failed dial.
const YOUNG: Duration = Duration::from_secs(1);

/// What the connections of one pool share.
///
/// An open breaker lets one call pass now and then, and each uses the next connection. Counts by connection alone would
/// need many of these calls to detect a network that has lost all connections.
#[derive(Debug)]
pub(crate) struct PoolLiveness {
    start: Instant,
    /// A call that was dropped sooner does not count as unanswered: its client may have hung up.
    min_wait_us: u64,
    timeouts: TimeoutStreak,
    /// Connections that were made before this time count as half open.
    lost_before_us: AtomicU64,
}

/// The liveness of one connection. Late replies of a connection that was replaced do not affect the new one.
#[derive(Debug)]
pub(crate) struct ConnectionLiveness {
    pool: Arc<PoolLiveness>,
    /// Whether a command has failed on the connection.
    broken: AtomicBool,
    /// Whether the other end has closed the connection.
    closed: Arc<AtomicBool>,
    /// Ends when sentinels name another master. `None` for a server that is not behind sentinels.
    tenure: Option<Tenure>,
    /// Whether the connection has ever delivered a reply.
    has_answered: AtomicBool,
    timeouts: TimeoutStreak,
    born_us: u64,
}

/// Unanswered calls in a row, each sent after the previous one was given up. Calls in flight at the same time met the
/// same stall and count once.
#[derive(Debug, Default)]
struct TimeoutStreak {
    unanswered: AtomicU32,
    given_up_us: AtomicU64,
}

impl TimeoutStreak {
    fn reset(&self) {
        // Threads share the counter, which is nearly always 0. Reading it first avoids most writes.
        if self.unanswered.load(Ordering::Relaxed) > 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a call that was sent and given up at these times. Returns whether the streak is long enough to give up.
    fn add(&self, sent_us: u64, now_us: u64) -> bool {
        let last_us = self.given_up_us.load(Ordering::Acquire);
        let counts = sent_us > last_us
            // A call that loses the race was in flight at the same time and met the same stall.
            && self.given_up_us.compare_exchange(last_us, now_us, Ordering::AcqRel, Ordering::Acquire).is_ok();
        counts && self.unanswered.fetch_add(1, Ordering::AcqRel) + 1 >= MAX_UNANSWERED
    }
}

impl PoolLiveness {
    /// `deadline` is the time for which calls wait. The deadline starts a little before a call is sent, so a call that
    /// was dropped after half of the deadline counts as unanswered.
    pub(crate) fn new(deadline: Duration) -> Self {
        Self {
            start: Instant::now(),
            min_wait_us: micros(deadline / 2),
            timeouts: TimeoutStreak::default(),
            lost_before_us: AtomicU64::new(0),
        }
    }

    fn now_us(&self) -> u64 {
        micros(self.start.elapsed())
    }
}

impl ConnectionLiveness {
    /// The liveness of a connection that has just been made. `closed` becomes true when the other end closes it.
    pub(crate) fn new(pool: Arc<PoolLiveness>, closed: Arc<AtomicBool>, tenure: Option<Tenure>) -> Self {
        let born_us = pool.now_us();
        Self {
            pool,
            broken: AtomicBool::new(false),
            closed,
            tenure,
            has_answered: AtomicBool::new(false),
            timeouts: TimeoutStreak::default(),
            born_us,
        }
    }

    /// Tracks a call. The call counts as unanswered if it is dropped before [`TrackedCall::answered`].
    pub(crate) fn begin_call(self: &Arc<Self>) -> TrackedCall {
        TrackedCall { connection: Arc::clone(self), sent_us: self.pool.now_us(), answered: false }
    }

    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Whether the connection is closed, has failed or leads to a former master, and must no longer be used.
    pub(crate) fn is_broken(&self) -> bool {
        let is_left = || self.tenure.as_ref().is_some_and(Tenure::has_ended);
        self.has_failed() || self.closed.load(Ordering::Acquire) || is_left()
    }

    /// Whether the connection broke soon after it was made. A connection that has answered and is closed while idle
    /// does not count, because the next dial must not wait when a server restarts. Neither does one that is left for
    /// another master, which the next dial reaches.
    pub(crate) fn broke_young(&self) -> bool {
        let closed_unused = || self.closed.load(Ordering::Acquire) && !self.has_answered.load(Ordering::Relaxed);
        let is_young = || self.pool.now_us().saturating_sub(self.born_us) < micros(YOUNG);
        (self.has_failed() || closed_unused()) && is_young()
    }

    fn has_failed(&self) -> bool {
        self.broken.load(Ordering::Acquire) || self.born_us < self.pool.lost_before_us.load(Ordering::Acquire)
    }
}

/// A call in flight. See [`ConnectionLiveness::begin_call`].
pub(crate) struct TrackedCall {
    connection: Arc<ConnectionLiveness>,
    sent_us: u64,
    answered: bool,
}

impl TrackedCall {
    /// Ends the call with a reply, whatever the reply is.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for TrackedCall {
    fn drop(&mut self) {
        let ConnectionLiveness { pool, timeouts, has_answered, .. } = &*self.connection;
        if self.answered {
            if !has_answered.load(Ordering::Relaxed) {
                has_answered.store(true, Ordering::Relaxed);
            }
            timeouts.reset();
            pool.timeouts.reset();
            return;
        }
        let now_us = pool.now_us();
        // The late failure of a connection that is already broken adds nothing.
        if self.connection.is_broken() || now_us.saturating_sub(self.sent_us) < pool.min_wait_us {
            return;
        }
        if timeouts.add(self.sent_us, now_us) {
            self.connection.mark_broken();
        }
        if pool.timeouts.add(self.sent_us, now_us) {
            pool.timeouts.reset();
            pool.lost_before_us.fetch_max(self.sent_us, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::{super::followed::Followed, *};

    /// Counts every dropped call as unanswered.
    fn pool() -> Arc<PoolLiveness> {
        Arc::new(PoolLiveness::new(Duration::ZERO))
    }

    fn connection(pool: &Arc<PoolLiveness>) -> Arc<ConnectionLiveness> {
        Arc::new(ConnectionLiveness::new(Arc::clone(pool), Arc::default(), None))
    }

    /// Advances the clock of the operating system by at least one microsecond.
    fn time_passes() {
        sleep(Duration::from_micros(10));
    }

    #[test]
    fn three_unanswered_calls_in_a_row_break_a_connection_and_fewer_do_not() {
        let pool = pool();
        let (old, other) = (connection(&pool), connection(&pool));
        let misses = |count: usize| {
            for _ in 0..count {
                time_passes();
                // The other connection answers.
                other.begin_call().answered();
                drop(old.begin_call());
            }
        };
        misses(2);
        old.begin_call().answered();
        misses(1);
        time_passes();
        // Calls in flight at the same time met one stall.
        drop([old.begin_call(), old.begin_call(), old.begin_call()]);
        assert!(!old.is_broken());
        misses(1);
        assert!(old.is_broken());
        // Calls of the broken connection do not affect the others.
        misses(10);
        assert!(!other.is_broken() && !connection(&pool).is_broken());
    }

    #[test]
    fn three_calls_one_after_the_other_that_go_unanswered_break_all_connections_made_before() {
        let pool = pool();
        let old = [(); 4].map(|()| connection(&pool));
        for connection in &old[..3] {
            assert!(old.iter().all(|connection| !connection.is_broken()));
            time_passes();
            drop(connection.begin_call());
        }
        assert!(old.iter().all(|connection| connection.is_broken()));
        time_passes();
        let new = [(); 3].map(|()| connection(&pool));
        drop([new[0].begin_call(), new[1].begin_call(), new[2].begin_call()]);
        time_passes();
        drop(new[0].begin_call());
        // A reply resets the streak of the whole pool.
        new[1].begin_call().answered();
        time_passes();
        drop(new[2].begin_call());
        assert!(new.iter().all(|connection| !connection.is_broken()));
    }

    #[test]
    fn a_connection_that_is_closed_at_rest_has_not_broken_young() {
        for used in [true, false] {
            let closed = Arc::<AtomicBool>::default();
            let connection = Arc::new(ConnectionLiveness::new(pool(), Arc::clone(&closed), None));
            if used {
                connection.begin_call().answered();
            }
            assert!(!connection.is_broken());
            closed.store(true, Ordering::Release);
            assert_eq!((connection.is_broken(), connection.broke_young()), (true, !used));
        }
    }

    #[test]
    fn a_connection_that_is_left_for_another_master_has_not_broken_young() {
        let followed = Followed::default();
        let tenure = followed.set("former");
        let connection = Arc::new(ConnectionLiveness::new(pool(), Arc::default(), Some(tenure)));
        assert!(!connection.is_broken());
        followed.set("elected");
        assert_eq!((connection.is_broken(), connection.broke_young()), (true, false));
        connection.mark_broken();
        assert!(connection.broke_young());
    }

    #[test]
    fn a_client_that_hangs_up_early_says_nothing_about_the_connection() {
        let connection = connection(&Arc::new(PoolLiveness::new(Duration::from_secs(60))));
        for _ in 0..10 {
            drop(connection.begin_call());
        }
        assert!(!connection.is_broken());
    }
}
