//! Bans and resets that take a while, beside checks that take blocks.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::store::{Answer, CountChange, Store, Verdict};
use tollgate::{Check, Key, Limiter, MemoryStore, Policy, clock::TokioClock};

use super::{KEY, MS, load, per_minute};

/// A store that judges at once and takes ten milliseconds for a change by hand.
#[derive(Clone, Debug)]
struct SlowChanges(MemoryStore);

impl SlowChanges {
    fn later<T: Send + 'static>(&self, change: impl FnOnce(&MemoryStore) -> Answer<T> + Send + 'static) -> Answer<T> {
        let this = self.clone();
        Answer::pending(async move {
            sleep(10 * MS).await;
            let Answer::Ready(changed) = change(&this.0) else { panic!("a memory store answers at once") };
            changed
        })
    }
}

impl Store for SlowChanges {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let (key, policy) = (key.clone(), policy.clone());
        self.later(move |memory| memory.reset(&key, &policy))
    }

    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        let (key, policy) = (key.clone(), policy.clone());
        self.later(move |memory| memory.change_count(&key, &policy, change))
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

/// Loads a key before, during and after `change`. Returns what was admitted after it.
async fn admitted_after(policy: &Policy, change: impl AsyncFnOnce(&Limiter)) -> u64 {
    let limiter = Limiter::new(SlowChanges(MemoryStore::new().with_clock(TokioClock::new())));
    assert!(load(&limiter, policy, 10, 20).await.from_blocks > 0);
    let changed = async {
        change(&limiter).await;
        load(&limiter, policy, 20, 100).await.admitted
    };
    tokio::join!(load(&limiter, policy, 10, 10), changed).1
}

#[tokio::test(start_paused = true)]
async fn a_banned_key_is_not_admitted_from_a_block_that_was_taken_during_the_ban() {
    let policy = per_minute(100_000, 1_000);
    // A tool may ban under a policy of the same name that has no lease.
    for by in [&policy, &Policy::per_minute("p", 100_000).unwrap()] {
        let ban = async |limiter: &Limiter| limiter.ban(KEY, by, Duration::from_secs(600)).await.unwrap();
        assert_eq!(admitted_after(&policy, ban).await, 0, "{by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn law_1_a_block_that_was_taken_during_a_reset_does_not_add_to_the_limit() {
    let policy = per_minute(1_000, 400);
    let reset = async |limiter: &Limiter| assert!(limiter.reset(KEY, &policy).await.unwrap());
    assert!(admitted_after(&policy, reset).await <= 1_000);
}
