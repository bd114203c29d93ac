//! Blocked policies on Redis: it gets no command for them, and judges what is beside a blocked shadow policy.

use std::time::Duration;

use tollgate::store::{Answer, CountChange, Store};
use tollgate::{Check, FailurePolicy, Limiter, MemoryStore, Policy, decision::Source};

use super::calls;
use crate::support::{connect, redis_server::RedisServer};

#[tokio::test]
async fn a_blocked_policy_needs_no_call_and_holds_while_redis_is_away() {
    let server = RedisServer::start();
    let store = connect(&server.url());
    let limiter = Limiter::new(store.clone());
    let limiter = limiter.with_local_fallback(MemoryStore::new(), 1);
    let (suspended, plain) = (Policy::blocked("suspended").unwrap(), Policy::per_hour("plain", 9).unwrap());
    let check = || Check::new("k", &plain, 5).and("k", &suspended, 1);
    let shadow = || Check::new("k", &plain, 5).and("k", &suspended.clone().with_shadow(true), 1);
    let judged = limiter.check_all(shadow()).await.unwrap();
    assert_eq!((judged.is_allowed(), judged.would_deny(), judged.source()), (true, true, Source::Store));
    let before = calls(&server, "evalsha");
    for _ in 0..5 {
        let denied = limiter.check_all(check()).await.unwrap();
        assert_eq!((denied.is_allowed(), denied.source()), (false, Source::Policy));
        assert!(!limiter.try_check_all(check()).unwrap().is_allowed());
        assert!(!limiter.peek("k", &suspended).await.unwrap().is_allowed());
    }
    let minute = Duration::from_secs(60);
    for change in [CountChange::Ban(minute), CountChange::Unban, CountChange::Record(1), CountChange::Credit(1)] {
        let Answer::Ready(Err(error)) = store.change_count(&"k".into(), &suspended, change) else {
            panic!("{change:?}")
        };
        assert!(error.to_string().contains("it is blocked and counts nothing"), "{error}");
    }
    assert_eq!(calls(&server, "evalsha"), before);
    assert_eq!(limiter.peek("k", &plain).await.unwrap().available(), Some(4));
    assert!(!limiter.peek_all(shadow()).await.unwrap().is_allowed(), "the plain policy has no room for 5");
    drop(server);
    let denied = FailurePolicy::Open.resolve(limiter.check_all(check()).await);
    assert_eq!((denied.is_allowed(), denied.source()), (false, Source::Policy));
    let spent = limiter.check_all(shadow()).fail_local().await.unwrap();
    assert_eq!((spent.is_allowed(), spent.would_deny(), spent.source()), (false, true, Source::Local));
}
