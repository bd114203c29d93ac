//! The stores, their outages, and an observer that panics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::{panic, time::Duration};

use tollgate::observe::{Event, Observer};
use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, Limiter, MemoryStore, Policy, RedisStore};

use crate::support::redis_server::RedisServer;

/// A store with outages.
#[derive(Clone)]
pub(super) enum Tested {
    Memory(Flaky),
    Redis(Arc<RedisServer>),
}

impl Tested {
    pub(super) fn memory() -> Self {
        Self::Memory(Flaky::default())
    }

    pub(super) fn redis() -> Self {
        Self::Redis(Arc::new(RedisServer::start()))
    }

    /// A limiter with a local fallback, alone on the store.
    pub(super) fn limiter(&self) -> Limiter {
        let limiter = match self {
            Self::Memory(store) => Limiter::new(store.clone()),
            Self::Redis(server) => Limiter::new(RedisStore::open(&server.url()).unwrap()),
        };
        limiter.with_local_fallback(MemoryStore::new(), 1)
    }

    /// Whether calls may stay without an answer, so that nobody knows whether the store has charged them.
    pub(super) fn answers_are_lost(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    fn set_down(&self, down: bool) {
        match self {
            Self::Memory(store) => store.down.store(down, Ordering::SeqCst),
            Self::Redis(server) => server.signal(if down { "STOP" } else { "CONT" }),
        }
    }
}

/// A memory store that refuses everything during an outage.
#[derive(Clone, Debug, Default)]
pub(super) struct Flaky {
    store: MemoryStore,
    down: Arc<AtomicBool>,
}

impl Flaky {
    fn answer<T>(&self, answer: impl FnOnce(&MemoryStore) -> Answer<T>) -> Answer<T> {
        if self.down.load(Ordering::SeqCst) {
            return Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "down")));
        }
        answer(&self.store)
    }
}

impl Store for Flaky {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.answer(|store| store.check(check))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.answer(|store| store.reset(key, policy))
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        self.answer(|store| store.change_hold(hold, change))
    }
}

/// Takes the store away for 120 ms, twice a second.
pub(super) struct Outages {
    thread: JoinHandle<u64>,
    stop: Arc<AtomicBool>,
}

impl Outages {
    pub(super) fn start(tested: Tested) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut outages = 0;
            while !stopped.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(180));
                tested.set_down(true);
                thread::sleep(Duration::from_millis(120));
                tested.set_down(false);
                outages += 1;
                thread::sleep(Duration::from_millis(200));
            }
            outages
        });
        Self { thread, stop }
    }

    /// Returns how many outages there were.
    pub(super) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Panics on one event of ten.
#[derive(Default)]
pub(super) struct Panics(AtomicU64);

const PANIC: &str = "the observer of the lives";

impl Panics {
    fn event(&self) {
        if self.0.fetch_add(1, Ordering::Relaxed) % 10 == 9 {
            panic::panic_any(PANIC);
        }
    }
}

impl Observer for Panics {
    fn on_event(&self, _: &Event<'_>) {
        self.event();
    }
}

/// Thousands of panics of the observer are no news.
pub(super) fn silence_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if info.payload().downcast_ref::<&str>() != Some(&PANIC) {
                report(info);
            }
        }));
    });
}
