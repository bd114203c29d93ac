//! A store around another store: what it does not implement itself is the inner store's.

use std::time::Duration;

use tollgate::store::{Answer, Check, Store, Verdict};
use tollgate::{Key, Limiter, MemoryStore, Policy, RedisStore, policy::HoldSettings};

use crate::support::recorder::{Recorder, assert_warnings};

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

/// Four instances share three servers.
#[derive(Debug)]
struct InParts(MemoryStore);

impl Store for InParts {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn failure_domains(&self) -> usize {
        3
    }

    fn failure_domain_of(&self, _: &Key) -> usize {
        2
    }

    fn instances(&self) -> Option<u32> {
        Some(4)
    }
}

#[test]
fn a_wrapper_has_the_failure_domains_and_the_instances_of_its_inner_store() {
    let wrapper = Wrapper(InParts(MemoryStore::new()));
    let domains = (wrapper.failure_domains(), wrapper.failure_domain_of(&Key::from("k")));
    assert_eq!((domains, wrapper.instances()), ((3, 2), Some(4)));
}

#[tokio::test]
async fn a_wrapper_has_the_alternatives_and_the_warnings_of_its_inner_store() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(Wrapper(MemoryStore::with_capacity(1).unwrap())).with_observer(recorder.clone());
    let [included, credits] = ["included", "credits"].map(|name| Policy::per_minute(name, 1).unwrap());
    for _ in 0..2 {
        let check = Check::first_of("k", [&included, &credits], 1);
        assert!(limiter.check_all(check).await.unwrap().is_allowed());
    }
    assert_warnings(&recorder.take().warnings, &[("store_full", "room for 1 keys")]);
}
