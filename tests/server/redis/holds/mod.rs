//! Holds on Redis.

mod agreement;
mod bursts;
mod clock_steps;
mod cluster;
mod costs;
mod denials;
mod ended_runtimes;
mod inspection;
mod keys;
mod late;
mod processes;
mod shared_names;
mod slots;
mod together;
mod unanswered;

use std::time::Duration;

use tollgate::store::{Answer, Charge, HoldChange, RedisStoreBuilder, SettleAnswer, Store, Verdict};
use tollgate::{Check, Error, ManualClock, Policy, RedisStore};

use crate::support::redis_server::RedisServer;

/// A store with plain keys and a long deadline, so that a loaded machine causes no timeouts.
fn builder() -> RedisStoreBuilder {
    RedisStore::builder().plain_keys().deadline(Duration::from_secs(10))
}

/// A clock that stands at this time.
fn clock_at(now_us: u64) -> ManualClock {
    let clock = ManualClock::default();
    clock.set_us(now_us);
    clock
}

fn with_clock(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    builder().clock(clock.clone()).open(&server.url()).unwrap()
}

pub(super) async fn answer<T>(answer: Answer<T>) -> Result<T, Error> {
    match answer {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => pending.await,
    }
}

pub(super) async fn check(store: &dyn Store, check: &Check) -> Verdict {
    answer(store.check(check)).await.unwrap()
}

pub(super) async fn change(store: &dyn Store, hold: &Charge, change: HoldChange) -> SettleAnswer {
    answer(store.change_hold(hold, change)).await.unwrap()
}

/// Holds units. `None` if they do not fit.
pub(super) async fn hold(store: &dyn Store, key: &str, policy: &Policy, cost: u64) -> Option<Charge> {
    let held = Check::hold(key, policy, cost);
    check(store, &held).await.allowed.then(|| held.charges()[0].clone())
}

pub(super) async fn available(store: &dyn Store, key: &str, policy: &Policy) -> u64 {
    check(store, &Check::new(key, policy, 0)).await.outcomes[0].available
}
