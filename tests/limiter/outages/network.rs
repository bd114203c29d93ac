//! A store in memory behind a way for each instance. A way may refuse, be silent, lose one direction, or be slow.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, MemoryStore, Policy, failure::BreakerSettings};

use crate::support::random::Random;

pub(super) const MS: Duration = Duration::from_millis(1);

/// What a way does to the calls that use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Open,
    /// Calls fail at once, and nothing is sent.
    Refused,
    /// Both directions lose everything.
    Silent,
    /// Nothing arrives until the fault ends; then all does, as after TCP has sent it again.
    Held,
    /// Requests are lost.
    Deaf,
    /// Replies are lost.
    Mute,
    /// Each direction takes so many milliseconds more.
    Slow(u64),
    /// So many of a hundred calls fail: refused, or reset before or after the store has received them.
    Flaky(u64),
}

/// The way of one instance to the store. Clones are one way.
#[derive(Clone, Debug)]
pub(super) struct Link(Arc<State>);

#[derive(Debug)]
struct State {
    memory: MemoryStore,
    latency: Duration,
    way: Mutex<Way>,
    random: Mutex<Random>,
    /// The connections break.
    reset: Notify,
    /// The way has changed.
    changed: Notify,
}

impl Link {
    pub(super) fn new(memory: MemoryStore, latency: Duration, seed: u64) -> Self {
        Self(Arc::new(State {
            memory,
            latency,
            way: Mutex::new(Way::Open),
            random: Mutex::new(Random(seed)),
            reset: Notify::new(),
            changed: Notify::new(),
        }))
    }

    /// Changes the way. With `resets`, the calls in flight fail, and nobody knows whether they have arrived.
    pub(super) fn set(&self, way: Way, resets: bool) {
        *self.0.way.lock().unwrap() = way;
        self.0.changed.notify_waiters();
        if resets {
            self.0.reset.notify_waiters();
        }
    }

    fn way(&self) -> Way {
        *self.0.way.lock().unwrap()
    }

    fn call<T: Send + 'static>(&self, judge: impl FnOnce(&MemoryStore) -> Answer<T> + Send + 'static) -> Answer<T> {
        let this = self.clone();
        Answer::pending(async move {
            let fault = match this.way() {
                Way::Refused => 0,
                Way::Flaky(percent) => {
                    let mut random = this.0.random.lock().unwrap();
                    if random.below(100) < percent { random.below(3) } else { 3 }
                }
                _ => 3,
            };
            if fault == 0 {
                return Err(Error::new(ErrorKind::Unavailable, "connection refused"));
            }
            let (reply, received) = oneshot::channel();
            tokio::spawn(this.carry(fault, judge, reply));
            match received.await {
                Ok(result) => result,
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Carries a request to the store, and its reply back.
    async fn carry<T: Send + 'static>(
        self,
        fault: u64,
        judge: impl FnOnce(&MemoryStore) -> Answer<T>,
        reply: oneshot::Sender<Result<T, Error>>,
    ) {
        let reset = || Error::new(ErrorKind::Unavailable, "connection reset").charge_unknown();
        let mut broken = std::pin::pin!(self.0.reset.notified());
        broken.as_mut().enable();
        let there = async {
            self.travel().await;
            fault != 1 && !matches!(self.way(), Way::Silent | Way::Deaf)
        };
        let arrives = tokio::select! {
            biased;
            () = broken.as_mut() => { let _ = reply.send(Err(reset())); return }
            arrives = there => arrives,
        };
        if fault == 1 {
            let _ = reply.send(Err(reset()));
        } else if arrives {
            let Answer::Ready(result) = judge(&self.0.memory) else { panic!("a memory store answers at once") };
            let back = async {
                self.travel().await;
                !matches!(self.way(), Way::Silent | Way::Mute)
            };
            let arrives = tokio::select! {
                biased;
                () = broken => { let _ = reply.send(Err(reset())); return }
                arrives = back => arrives,
            };
            if arrives {
                let _ = reply.send(if fault == 2 { Err(reset()) } else { result });
            }
        }
    }

    /// One direction.
    async fn travel(&self) {
        let more = match self.way() {
            Way::Slow(ms) => {
                let jitter = self.0.random.lock().unwrap().below(ms / 2 + 1);
                u32::try_from(ms + jitter).unwrap() * MS
            }
            _ => Duration::ZERO,
        };
        sleep(self.0.latency + more).await;
        while self.way() == Way::Held {
            let changed = self.0.changed.notified();
            if self.way() == Way::Held {
                changed.await;
            }
        }
    }
}

impl Store for Link {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let check = check.clone();
        self.call(move |memory| memory.check(&check))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.memory.reset(key, policy)
    }

    fn breaker(&self) -> Option<BreakerSettings> {
        Some(BreakerSettings::default())
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let hold = hold.clone();
        self.call(move |memory| memory.change_hold(&hold, change))
    }
}
