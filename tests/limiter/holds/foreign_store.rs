//! A store of another author.

use std::time::Duration;

use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, Key, Limiter, MemoryStore, Policy};

/// Has one failure domain, and numbers it by a hash of the key.
#[derive(Debug)]
struct Hashed(MemoryStore);

impl Store for Hashed {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }

    fn failure_domain_of(&self, _: &Key) -> usize {
        usize::MAX / 3
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let (memory, hold) = (self.0.clone(), hold.clone());
        Answer::pending(async move {
            tokio::task::yield_now().await;
            match memory.change_hold(&hold, change) {
                Answer::Ready(answer) => answer,
                Answer::Pending(answer) => answer.await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn law_15_a_slot_is_free_again_whatever_the_number_of_its_failure_domain_is() {
    let (limiter, policy) = (Limiter::new(Hashed(MemoryStore::new())), Policy::concurrent("slot", 1).unwrap());
    drop(limiter.hold("k", &policy, 1).await.unwrap().into_result().unwrap());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(limiter.hold("k", &policy, 1).await.unwrap().is_allowed());
}
