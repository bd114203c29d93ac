//! Whether a connection is alive, judged by the calls that got no reply.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::silence::{Lost, ServerSilence, TimeoutStreak};
use super::{followed::Tenure, redial::Redial, wire::Wire};
use crate::clock::micros;
use crate::runtime::{deadline::CATCH_UP, stalls::has_stalled_within};

/// A connection that breaks at a lower age counts as a failed dial.
const YOUNG: Duration = Duration::from_secs(1);

/// What the connections of one pool share.
///
/// An open breaker lets one call pass now and then, and each uses the next connection. Counts by connection alone would
/// need many of these calls to detect a network that has lost all connections.
#[derive(Debug)]
pub(crate) struct PoolLiveness {
    /// What the pools of other runtimes know. Their replies say nothing about connections of this pool that were idle
    /// for so long that the network has forgotten them, so this pool has a count of its own.
    server: Arc<ServerSilence>,
    /// A call that was dropped sooner does not count as unanswered: its client may have hung up.
    min_wait_us: u64,
    timeouts: TimeoutStreak,
    lost: Lost,
    redial: OnceLock<Weak<Redial>>,
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

impl PoolLiveness {
    /// `deadline` is the time for which calls wait. The deadline starts a little before a call is sent, so a call that
    /// was dropped after half of the deadline counts as unanswered.
    pub(crate) fn new(deadline: Duration) -> Self {
        Self::of(Arc::default(), deadline)
    }

    /// The liveness of one of several pools to the same server.
    pub(super) fn of(server: Arc<ServerSilence>, deadline: Duration) -> Self {
        let min_wait_us = micros(deadline / 2);
        let (timeouts, lost) = (TimeoutStreak::default(), Lost::default());
        Self { server, min_wait_us, timeouts, lost, redial: OnceLock::new() }
    }

    fn now_us(&self) -> u64 {
        self.server.now_us()
    }

    fn has_lost(&self, born_us: u64) -> bool {
        self.lost.has(born_us) || self.server.lost.has(born_us)
    }

    fn answered(&self) {
        self.timeouts.reset();
        self.server.timeouts.reset();
    }

    /// Counts a call that got no reply. Returns whether connections were found to be lost.
    fn unanswered(&self, sent_us: u64, now_us: u64) -> bool {
        let finds = |timeouts: &TimeoutStreak, lost: &Lost| {
            let is_lost = timeouts.add(sent_us, now_us);
            if is_lost {
                timeouts.reset();
                lost.all_before(sent_us);
            }
            is_lost
        };
        let here = finds(&self.timeouts, &self.lost);
        // A runtime that stood still has not read what had arrived, and its client has hung up meanwhile. That says
        // nothing about the connections of other runtimes.
        let everywhere = !has_stalled_within(CATCH_UP) && finds(&self.server.timeouts, &self.server.lost);
        here || everywhere
    }

    /// Sets what dials lost connections of this pool again, for as long as `redial` is kept.
    pub(super) fn redial_with(&self, redial: &Arc<Redial>) {
        // The pool has its value once, when it is opened.
        let _ = self.redial.set(Arc::downgrade(redial));
    }

    /// Dials again what is lost, so that the next check finds a connection.
    fn redial(&self) {
        if let Some(redial) = self.redial.get().and_then(Weak::upgrade) {
            redial.start();
        }
    }
}

impl ConnectionLiveness {
    /// The liveness of a connection that has been dialled.
    pub(super) fn of_wire(pool: Arc<PoolLiveness>, wire: &Wire) -> Self {
        Self::new(pool, Arc::clone(&wire.closed), wire.tenure.clone())
    }

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
        self.broken.load(Ordering::Acquire) || self.pool.has_lost(self.born_us)
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
            pool.answered();
            return;
        }
        let now_us = pool.now_us();
        // The late failure of a connection that is already broken adds nothing.
        if self.connection.is_broken() || now_us.saturating_sub(self.sent_us) < pool.min_wait_us {
            return;
        }
        let is_silent = timeouts.add(self.sent_us, now_us);
        if is_silent {
            self.connection.mark_broken();
        }
        if pool.unanswered(self.sent_us, now_us) || is_silent {
            pool.redial();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::{super::followed::Followed, *};
    use crate::runtime::stalls::Begin;

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
    fn three_calls_on_any_runtimes_that_go_unanswered_break_the_connections_of_all_of_them() {
        let server = Arc::<ServerSilence>::default();
        let pool = || Arc::new(PoolLiveness::of(Arc::clone(&server), Duration::ZERO));
        let pools = [pool(), pool()];
        let old = [0, 1, 0, 1].map(|runtime: usize| connection(&pools[runtime]));
        let misses = |number: usize| {
            time_passes();
            drop(old[number].begin_call());
        };
        misses(0);
        misses(1);
        // A reply on one runtime says that the server is there for both.
        connection(&pools[1]).begin_call().answered();
        misses(0);
        misses(3);
        assert!(old.iter().all(|connection| !connection.is_broken()));
        misses(1);
        assert!(old.iter().all(|connection| connection.is_broken()));
        time_passes();
        assert!(!connection(&pools[0]).is_broken() && !connection(&pools[1]).is_broken());
    }

    #[tokio::test]
    async fn connections_of_one_runtime_that_the_network_has_forgotten_break_beside_replies_to_another_one() {
        let server = Arc::<ServerSilence>::default();
        let pool = || Arc::new(PoolLiveness::of(Arc::clone(&server), Duration::ZERO));
        let (forgotten, other) = (pool(), pool());
        let is_dialled_again = Arc::<AtomicBool>::default();
        let of_redial = Arc::clone(&is_dialled_again);
        let redial = Redial::new(move || {
            of_redial.store(true, Ordering::Relaxed);
            Box::pin(async {})
        });
        forgotten.redial_with(&redial);
        let (old, well) = ([(); 3].map(|()| connection(&forgotten)), connection(&other));
        for connection in &old {
            assert!(!connection.is_broken() && !is_dialled_again.load(Ordering::Relaxed));
            time_passes();
            well.begin_call().answered();
            drop(connection.begin_call());
        }
        assert!(old.iter().all(|connection| connection.is_broken()) && !well.is_broken());
        assert!(is_dialled_again.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn calls_of_a_runtime_that_stood_still_break_no_connection_of_another_one() {
        let server = Arc::<ServerSilence>::default();
        let pool = || Arc::new(PoolLiveness::of(Arc::clone(&server), Duration::from_millis(20)));
        let (stands_still, idle) = (connection(&pool()), connection(&pool()));
        for _ in 0..3 {
            // A check that waits.
            let _ = Begin::now(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(5)).await;
            let call = stands_still.begin_call();
            sleep(Duration::from_millis(40));
            drop(call);
        }
        assert!(!idle.is_broken());
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
            time_passes();
            drop(connection.begin_call());
        }
        assert!(!connection.is_broken());
    }
}
