//! Two threads of one instance that ask for the same key at the same time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::{hint, mem, thread};

use tokio::runtime::{Builder, Runtime};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{
    Check, Error, ErrorKind, Key, Limiter, ManualClock, MemoryStore, Policy, limiter::Hold, policy::HoldSettings,
};

use super::per_minute;
use crate::support::random::Random;

/// A store that loses one of every `one_of` checks before it is charged, and none at 0. The caller cannot know that.
#[derive(Clone, Debug)]
struct Lossy {
    memory: MemoryStore,
    one_of: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
}

impl Lossy {
    /// A store, and a limiter whose share is the whole limit. The counts of both have one clock.
    fn alone(one_of: u64) -> (Limiter, Self) {
        let clock = ManualClock::default();
        let memory = || MemoryStore::new().with_clock(clock.clone());
        let this = Self { memory: memory(), one_of: Arc::new(one_of.into()), asked: Arc::default() };
        (Limiter::new(this.clone()).without_notices().with_local_fallback(memory(), 1), this)
    }

    fn lose(&self, one_of: u64) {
        self.one_of.store(one_of, Ordering::SeqCst);
    }
}

impl Store for Lossy {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let one_of = self.one_of.load(Ordering::SeqCst);
        if one_of > 0 && self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(one_of) {
            return Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "connection reset").charge_unknown()));
        }
        self.memory.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.memory)
    }
}

const LIMIT: u64 = 4;
const TRIALS: usize = 10_000;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Two threads run through `trials` together. In each trial, each thread spins a random number of times, below its
/// bound in `spins`, and then runs its job.
fn race<T: Sync>(
    trials: &[T],
    spins: [u64; 2],
    first: impl Fn(&Runtime, &T) + Send + Sync,
    second: impl Fn(&Runtime, &T) + Send + Sync,
) {
    let start = Barrier::new(2);
    let run = |seed, spins, job: &(dyn Fn(&Runtime, &T) + Sync)| {
        let (runtime, mut random) = (runtime(), Random(seed));
        let _guard = runtime.enter();
        for trial in trials {
            start.wait();
            (0..random.below(spins)).for_each(|_| hint::spin_loop());
            job(&runtime, trial);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(1, spins[0], &first));
        scope.spawn(|| run(2, spins[1], &second));
    });
}

/// How many of many limiters with a limit of `LIMIT` admit more, if two threads ask each of them at the same time.
fn over_the_limit(admits: impl Fn(&Runtime, &Limiter) -> bool + Sync) -> usize {
    let limiters: Vec<(Limiter, AtomicU64)> = (0..TRIALS).map(|_| (Lossy::alone(2).0, AtomicU64::new(0))).collect();
    let ask = |runtime: &Runtime, (limiter, admitted): &(Limiter, AtomicU64)| {
        for _ in 0..LIMIT + 2 {
            admitted.fetch_add(u64::from(admits(runtime, limiter)), Ordering::Relaxed);
        }
    };
    race(&limiters, [1, 1], ask, ask);
    limiters.iter().filter(|(_, admitted)| admitted.load(Ordering::Relaxed) > LIMIT).count()
}

/// A thread sees that the share has room for one, another thread takes it, and the first one must not pass as well.
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

/// A store admits a slot that the share has no room for. Then a slot of the share is given back, and the share admits
/// it under the same name: nothing may release that.
#[test]
fn law_1_a_slot_for_which_room_comes_late_stays_taken_while_its_request_runs() {
    let policy = Policy::concurrent("slots", 1).unwrap();
    let (caller, slot) =
        (runtime(), async |limiter: &Limiter| limiter.hold("k", &policy, 1).fail_local().await.unwrap());
    let trial = |_| {
        let (limiter, store) = Lossy::alone(1);
        let first = caller.block_on(slot(&limiter)).into_result().ok();
        store.lose(0);
        (limiter, store, Mutex::new(first), Mutex::new(None))
    };
    let trials: Vec<_> = (0..TRIALS).map(trial).collect();
    race(
        &trials,
        [300, 300],
        |_, (_, _, first, _)| drop(first.lock().unwrap().take()),
        |runtime, (limiter, _, _, second)| *second.lock().unwrap() = runtime.block_on(slot(limiter)).into_result().ok(),
    );
    let has_two = |(limiter, store, _, second): &(Limiter, Lossy, Mutex<Option<Hold>>, Mutex<Option<Hold>>)| {
        store.lose(1);
        second.lock().unwrap().is_some() && caller.block_on(slot(limiter)).is_allowed()
    };
    assert_eq!(trials.iter().filter(|trial| has_two(trial)).count(), 0);
}

/// The share is full when its count is reset, so what it admits comes after the reset, and the store has to be charged.
#[test]
fn law_1_what_the_share_admits_after_a_reset_is_owed() {
    let (policy, caller) = (per_minute(LIMIT), runtime());
    let is_allowed = async |limiter: &Limiter| limiter.check("k", &policy, 1).fail_local().await.unwrap().is_allowed();
    let trial = |_| {
        let (limiter, store) = Lossy::alone(1);
        (0..LIMIT).for_each(|_| assert!(caller.block_on(is_allowed(&limiter))));
        (limiter, store, AtomicU64::new(0))
    };
    let trials: Vec<_> = (0..TRIALS).map(trial).collect();
    let ask = |runtime: &Runtime, (limiter, _, admitted): &(Limiter, Lossy, AtomicU64)| {
        for _ in 0..2 * LIMIT {
            admitted.fetch_add(u64::from(runtime.block_on(is_allowed(limiter))), Ordering::Relaxed);
        }
    };
    let reset = |runtime: &Runtime, (limiter, ..): &(Limiter, _, _)| {
        runtime.block_on(limiter.reset("k", &policy)).unwrap();
    };
    race(&trials, [400, 1], reset, ask);
    let is_over = |trial: &&(Limiter, Lossy, AtomicU64)| {
        trial.1.lose(0);
        ask(&caller, trial);
        trial.2.load(Ordering::Relaxed) > LIMIT
    };
    assert_eq!(trials.iter().filter(is_over).count(), 0);
}
