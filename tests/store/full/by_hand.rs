//! Changes by hand of keys without a count.

use tollgate::store::{Answer, CountChange, Store, WhenFull};
use tollgate::{ErrorKind, Key, Policy};

use super::{MINUTE, flood, store};
use crate::support::says;

#[tokio::test]
async fn a_full_store_that_drops_nothing_says_that_it_has_no_place_for_a_change_by_hand() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneKey] {
        let (limiter, store, _clock) = store(2, when_full);
        let policy = Policy::per_day("p", 10).unwrap();
        flood(&limiter, &policy, "kept", 2).await;
        let banned = limiter.ban("new", &policy, MINUTE).await.unwrap_err();
        let charged = limiter.record("new", &policy, 1).await.unwrap_err();
        for error in [banned, charged] {
            assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false));
            says(error, "the memory store is full of live counts; ");
        }
        // These leave nothing to keep.
        assert!(!limiter.unban("new", &policy).await.unwrap());
        assert_eq!(limiter.credit("new", &policy, 1).await.unwrap(), 0);
        // The others have their places.
        limiter.ban("kept 0", &policy, MINUTE).await.unwrap();
        limiter.record("kept 1", &policy, 3).await.unwrap();
        assert_eq!(limiter.peek("kept 1", &policy).await.unwrap().available(), Some(6));
        assert_eq!((store.keys(), store.evicted()), (2, 0));
    }
}

#[tokio::test]
async fn a_blocked_policy_has_no_count_that_a_full_store_could_change() {
    let (limiter, store, _clock) = store(1, WhenFull::EvictLeastSpent);
    let (blocked, policy) = (Policy::blocked("blocked").unwrap(), Policy::per_day("p", 10).unwrap());
    for change in [CountChange::Ban(MINUTE), CountChange::Unban, CountChange::Record(1), CountChange::Credit(1)] {
        let changed = store.change_count(&Key::from("k"), &blocked, change);
        let Answer::Ready(Err(error)) = changed else { panic!("{change:?} is no error") };
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        says(error, "it is blocked and counts nothing, ");
    }
    assert_eq!(flood(&limiter, &policy, "new", 3).await, 3);
}
