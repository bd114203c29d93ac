//! What the error of a reset says about the count.

use tollgate::store::{Answer, FailingStore, Store, Verdict};
use tollgate::{Check, ErrorKind, Key, Limiter, MemoryStore, Policy};

/// A store that fails after its first reset.
#[derive(Debug)]
struct FailsAfterOne(FailingStore);

impl Store for FailsAfterOne {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let answer = self.0.reset(key, policy);
        self.0.fail(ErrorKind::Unavailable);
        answer
    }
}

fn policy() -> Policy {
    Policy::per_minute("p", 10).unwrap()
}

#[tokio::test]
async fn the_error_of_a_reset_that_has_forgotten_the_count_says_so() {
    for policy in [policy(), policy().with_shards(2)] {
        let store = FailingStore::over(MemoryStore::new());
        store.recover();
        let (limiter, healthy) = (Limiter::new(FailsAfterOne(store.clone())), Limiter::new(store.clone()));
        assert!(healthy.check("k", &policy, 5).await.unwrap().is_allowed());
        let error = limiter.reset("k", &policy).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, true));
    }
}

#[tokio::test]
async fn the_error_of_a_reset_that_never_reached_the_store_says_so() {
    let store = FailingStore::new();
    store.fail(ErrorKind::Unavailable);
    let error = Limiter::new(store).reset("k", &policy()).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false));
}
