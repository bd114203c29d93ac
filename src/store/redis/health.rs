//! What unanswered calls tell about a connection, and about all that were made before.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// After so many in a row a connection may be half open, its other end gone without a word.
const UNANSWERED: u32 = 3;
/// A connection that breaks before that was hardly worth making.
const YOUNG: Duration = Duration::from_secs(1);

/// What the connections of one pool have in common.
///
/// While the breaker is open there is one call now and then, each on the next connection: counted by connection alone,
/// it would take many of them to see that a network has lost all.
#[derive(Debug)]
pub(super) struct Network {
    start: Instant,
    /// A call that was dropped earlier than that, because its client hung up say, has not been waited for.
    patience_us: u64,
    silence: Silence,
    /// What was made before that is half open.
    lost_before_us: AtomicU64,
}

/// Belongs to one connection: what comes late from a connection that was replaced says nothing about the new one.
#[derive(Debug)]
pub(super) struct Health {
    network: Arc<Network>,
    /// Whether it has failed a command.
    broken: AtomicBool,
    /// Whether its other end has closed it.
    closed: Arc<AtomicBool>,
    /// Whether it has ever been of use.
    has_answered: AtomicBool,
    silence: Silence,
    born_us: u64,
}

/// Calls in a row that got no reply, each sent after the one before was given up: what was under way at the same time
/// met the same stall.
#[derive(Debug, Default)]
struct Silence {
    unanswered: AtomicU32,
    given_up_us: AtomicU64,
}

impl Silence {
    fn ends(&self) {
        // Hardly ever anything else, and shared by threads: looked at before it is written.
        if self.unanswered.load(Ordering::Relaxed) > 0 {
            self.unanswered.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a call that was sent and given up at these times, and tells whether there are too many by now.
    fn goes_on(&self, sent_us: u64, now_us: u64) -> bool {
        let last_us = self.given_up_us.load(Ordering::Acquire);
        let counts = sent_us > last_us
            // Whoever comes second at the same time met the same stall.
            && self.given_up_us.compare_exchange(last_us, now_us, Ordering::AcqRel, Ordering::Acquire).is_ok();
        counts && self.unanswered.fetch_add(1, Ordering::AcqRel) + 1 >= UNANSWERED
    }
}

impl Network {
    /// Of calls that are waited for until `deadline`, which counts from a little before they are sent.
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            start: Instant::now(),
            patience_us: micros(deadline / 2),
            silence: Silence::default(),
            lost_before_us: AtomicU64::new(0),
        }
    }

    fn now_us(&self) -> u64 {
        micros(self.start.elapsed())
    }
}

impl Health {
    /// Of a connection that has just been made. `closed` becomes true when its other end closes it.
    pub(super) fn new(network: Arc<Network>, closed: Arc<AtomicBool>) -> Self {
        let born_us = network.now_us();
        Self {
            network,
            broken: AtomicBool::new(false),
            closed,
            has_answered: AtomicBool::new(false),
            silence: Silence::default(),
            born_us,
        }
    }

    /// Watches a call: without [`Call::answered`] before it is dropped, it counts as unanswered.
    pub(super) fn call(self: &Arc<Self>) -> Call {
        Call { health: Arc::clone(self), sent_us: self.network.now_us(), answered: false }
    }

    pub(super) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Whether it is of no use any more.
    pub(super) fn is_broken(&self) -> bool {
        self.has_failed() || self.closed.load(Ordering::Acquire)
    }

    /// Whether it broke as soon as it was made. One that has answered and is then closed at rest has not: a server that
    /// restarts is to be dialled at once.
    pub(super) fn broke_young(&self) -> bool {
        let useless = self.has_failed() || !self.has_answered.load(Ordering::Relaxed);
        self.is_broken() && useless && self.network.now_us() - self.born_us < micros(YOUNG)
    }

    fn has_failed(&self) -> bool {
        self.broken.load(Ordering::Acquire) || self.born_us < self.network.lost_before_us.load(Ordering::Acquire)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// See [`Health::call`].
pub(super) struct Call {
    health: Arc<Health>,
    sent_us: u64,
    answered: bool,
}

impl Call {
    /// Says that a reply came, whatever it was.
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Health { network, silence, has_answered, .. } = &*self.health;
        if self.answered {
            if !has_answered.load(Ordering::Relaxed) {
                has_answered.store(true, Ordering::Relaxed);
            }
            silence.ends();
            network.silence.ends();
            return;
        }
        let now_us = network.now_us();
        // The late failure of a connection that was given up says nothing new.
        if self.health.is_broken() || now_us - self.sent_us < network.patience_us {
            return;
        }
        if silence.goes_on(self.sent_us, now_us) {
            self.health.mark_broken();
        }
        if network.silence.goes_on(self.sent_us, now_us) {
            network.silence.ends();
            network.lost_before_us.fetch_max(self.sent_us, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    /// Nobody is too impatient.
    fn network() -> Arc<Network> {
        Arc::new(Network::new(Duration::ZERO))
    }

    fn health(network: &Arc<Network>) -> Arc<Health> {
        Arc::new(Health::new(Arc::clone(network), Arc::default()))
    }

    /// Time here is that of the operating system; one microsecond suffices.
    fn time_passes() {
        sleep(Duration::from_micros(10));
    }

    #[test]
    fn three_unanswered_calls_in_a_row_break_a_connection_and_fewer_do_not() {
        let network = network();
        let (old, other) = (health(&network), health(&network));
        let misses = |count: usize| {
            for _ in 0..count {
                time_passes();
                // The other one is well.
                other.call().answered();
                drop(old.call());
            }
        };
        misses(2);
        old.call().answered();
        misses(1);
        time_passes();
        // Calls that were under way together met one stall.
        drop([old.call(), old.call(), old.call()]);
        assert!(!old.is_broken());
        misses(1);
        assert!(old.is_broken());
        // What belongs to the old one leaves the others alone.
        misses(10);
        assert!(!other.is_broken() && !health(&network).is_broken());
    }

    #[test]
    fn three_calls_one_after_the_other_that_go_unanswered_break_all_connections_made_before() {
        let network = network();
        let old = [(); 4].map(|()| health(&network));
        for health in &old[..3] {
            assert!(old.iter().all(|health| !health.is_broken()));
            time_passes();
            drop(health.call());
        }
        assert!(old.iter().all(|health| health.is_broken()));
        time_passes();
        let new = [(); 3].map(|()| health(&network));
        drop([new[0].call(), new[1].call(), new[2].call()]);
        time_passes();
        drop(new[0].call());
        // And whoever is answered is not cut off.
        new[1].call().answered();
        time_passes();
        drop(new[2].call());
        assert!(new.iter().all(|health| !health.is_broken()));
    }

    #[test]
    fn a_connection_that_is_closed_at_rest_has_not_broken_young() {
        for used in [true, false] {
            let closed = Arc::<AtomicBool>::default();
            let health = Arc::new(Health::new(network(), Arc::clone(&closed)));
            if used {
                health.call().answered();
            }
            assert!(!health.is_broken());
            closed.store(true, Ordering::Release);
            assert_eq!((health.is_broken(), health.broke_young()), (true, !used));
        }
    }

    #[test]
    fn a_client_that_hangs_up_early_says_nothing_about_the_connection() {
        let health = health(&Arc::new(Network::new(Duration::from_secs(60))));
        for _ in 0..10 {
            drop(health.call());
        }
        assert!(!health.is_broken());
    }
}
