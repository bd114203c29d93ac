//! A store around another store: what it does not implement itself is the inner store's.

use std::time::Duration;

use tollgate::{
    Key, Limiter, MemoryStore, Policy, RedisStore,
    policy::HoldSettings,
    store::{Answer, Check, Store, Verdict},
};

#[derive(Debug)]
struct Wrapper<S>(S);

impl<S: Store> Store for Wrapper<S> {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_wrapper_has_the_holds_and_the_changes_by_hand_of_its_inner_store() {
    let limiter = Limiter::new(Wrapper(Wrapper(MemoryStore::new())));
    let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
    let available = async || limiter.peek("k", &policy).await.unwrap().available();
    let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
    assert_eq!(available().await, Some(6));
    hold.settle(1).await.unwrap();
    assert_eq!(available().await, Some(9));
    limiter.record("k", &policy, 2).await.unwrap();
    assert_eq!(available().await, Some(7));
    limiter.ban("k", &policy, Duration::from_secs(60)).await.unwrap();
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_wrapper_has_the_deadline_and_the_breaker_of_its_inner_store() {
    let deadline = Duration::from_millis(70);
    let redis = RedisStore::builder().deadline(deadline).open("redis://127.0.0.1:1").unwrap();
    let breaker = redis.breaker();
    assert!(breaker.is_some());
    let wrapper = Wrapper(redis);
    assert_eq!((wrapper.deadline(), wrapper.breaker()), (deadline, breaker));
    assert!(wrapper.has_holds() && wrapper.failure_domains() == 1);
}
