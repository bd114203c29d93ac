//! Checks on two threads at once.

use std::{
    mem,
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tokio::runtime::{Builder, Runtime};
use tollgate::{
    Check, Error, ErrorKind, Key, Limiter, ManualClock, MemoryStore, Policy,
    policy::HoldSettings,
    store::{Answer, Store, Verdict},
};

use super::per_minute;

/// A store that loses every second check. The caller cannot know whether it was charged.
#[derive(Debug)]
struct LosesEverySecond {
    memory: MemoryStore,
    asked: AtomicU64,
}

impl Store for LosesEverySecond {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        if self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            return self.memory.check(check);
        }
        Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "connection reset").charge_unknown()))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.memory)
    }
}

const LIMIT: u64 = 4;

/// How many of many limiters with a limit of `LIMIT` admit more, if two threads ask each of them at the same time.
fn over_the_limit(admits: impl Fn(&Runtime, &Limiter) -> bool + Sync) -> usize {
    let limiter = |_| {
        let clock = ManualClock::default();
        let memory = || MemoryStore::new().with_clock(clock.clone());
        let store = LosesEverySecond { memory: memory(), asked: AtomicU64::new(0) };
        let limiter = Limiter::new(store).without_notices().with_local_fallback(memory(), 1);
        (limiter, AtomicU64::new(0))
    };
    let limiters: Vec<(Limiter, AtomicU64)> = (0..10_000).map(limiter).collect();
    let start = Barrier::new(2);
    let ask_each = || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        for (limiter, admitted) in &limiters {
            start.wait();
            for _ in 0..LIMIT + 2 {
                admitted.fetch_add(u64::from(admits(&runtime, limiter)), Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(ask_each);
        scope.spawn(ask_each);
    });
    limiters.iter().filter(|(_, admitted)| admitted.load(Ordering::Relaxed) > LIMIT).count()
}

/// The share has room for one, a thread sees it, another thread takes it, and the first one passes as well: so it was.
#[test]
fn law_1_two_threads_of_one_instance_do_not_take_the_same_room_of_the_share() {
    let policy = per_minute(LIMIT);
    let checks = |runtime: &Runtime, limiter: &Limiter| {
        runtime.block_on(limiter.check("k", &policy, 1).fail_local()).unwrap().is_allowed()
    };
    assert_eq!(over_the_limit(checks), 0);
    let policy = per_minute(LIMIT).with_holds(HoldSettings::new());
    let holds = |runtime: &Runtime, limiter: &Limiter| {
        let held = runtime.block_on(limiter.hold("k", &policy, 1).fail_local()).unwrap();
        // Leaked, so that it stays held.
        held.into_result().map(mem::forget).is_ok()
    };
    assert_eq!(over_the_limit(holds), 0);
}
