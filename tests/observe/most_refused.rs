//! The list of the keys that are refused most.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tollgate::observe::{Fingerprint, MostRefused, RefusedKey};
use tollgate::{Check, GlobalKey, HeaderKey, Key, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer};

use crate::support::http::{get as fetch, get_with};
use crate::support::{DownStore, per_minute};

/// A limiter that refuses everything under policies of one unit once their unit is spent, and its list.
fn refusing(list: MostRefused) -> (Limiter, Arc<MostRefused>) {
    let list = Arc::new(list);
    let store = MemoryStore::new().with_clock(ManualClock::default());
    (Limiter::new(store).with_observer(Arc::clone(&list)), list)
}

/// Refuses a key this often.
async fn refuse(limiter: &Limiter, key: &str, policy: &Policy, times: u64) {
    for _ in 0..times {
        // A cost above the limit never passes, and is no error without a layer.
        let cost = policy.limit() + 1;
        assert!(!limiter.check(key, policy, cost).await.unwrap().is_allowed());
    }
}

fn summary(keys: &[RefusedKey]) -> Vec<(Fingerprint, &str, u64, u64)> {
    keys.iter().map(|key| (key.fingerprint, key.policy.name(), key.at_least, key.at_most)).collect()
}

fn fingerprint(key: &str) -> Fingerprint {
    Fingerprint::of(&Key::from(key))
}

#[tokio::test]
async fn the_most_refused_keys_are_listed_by_policy_with_exact_counts_while_they_are_few() {
    let (limiter, list) = refusing(MostRefused::new());
    let (p, q) = (per_minute("p", 1), per_minute("q", 1));
    refuse(&limiter, "alice", &p, 5).await;
    refuse(&limiter, "bob", &p, 9).await;
    refuse(&limiter, "bob", &q, 2).await;
    // An allowed check, and a check without a verdict, are no refusals by a limit.
    assert!(limiter.check("carol", &p, 1).await.unwrap().is_allowed());
    Limiter::new(DownStore).with_observer(Arc::clone(&list)).check("carol", &p, 1).await.unwrap_err();
    let (alice, bob) = (fingerprint("alice"), fingerprint("bob"));
    let keys = list.top(10);
    assert_eq!(summary(&keys), [(bob, "p", 9, 9), (alice, "p", 5, 5), (bob, "q", 2, 2)]);
    assert_eq!(keys[0].to_string(), format!("9 refusals policy=\"p\" key={bob}"));
    assert_eq!(list.top(1).len(), 1);
}

#[tokio::test]
async fn a_check_that_two_policies_deny_is_counted_under_both_and_not_under_those_with_room() {
    let (limiter, list) = refusing(MostRefused::new());
    let check = Check::new("k", &per_minute("p", 1), 2).and("k", &per_minute("q", 1), 2);
    let _ = limiter.check_all(check.and("k", &per_minute("wide", 9), 2)).await.unwrap();
    let keys = list.top(10);
    assert_eq!(keys.iter().map(|key| key.policy.name()).collect::<Vec<_>>(), ["p", "q"]);
}

#[tokio::test]
async fn the_list_names_the_latest_route_and_no_key() {
    let (limiter, list) = refusing(MostRefused::new());
    let key = HeaderKey::new("x-api-key").unwrap();
    let layer = RateLimitLayer::new(limiter.clone(), per_minute("p", 1), key);
    let routes =
        Router::new().route("/search/{id}", get(|| async {})).route("/watch", post(|| async {}).get(|| async {}));
    let app = routes.layer(layer);
    for path in ["/search/1", "/watch", "/search/2", "/search/3"] {
        get_with(&app, path, &[("x-api-key", "alice")]).await;
    }
    let keys = list.top(1);
    assert_eq!(keys[0].to_string(), format!("3 refusals policy=\"p\" key={} GET /search/{{id}}", fingerprint("alice")));
    assert!(!format!("{keys:?} {list:?}").contains("alice"));
    let app = Router::new().fallback(|| async {}).layer(RateLimitLayer::new(limiter, per_minute("q", 1), GlobalKey));
    for _ in 0..9 {
        fetch(&app, "/secret").await;
    }
    assert!(list.top(1)[0].to_string().ends_with(" GET unmatched"));
}

#[tokio::test]
async fn a_flood_of_made_up_keys_hides_no_key_that_is_refused_often_and_takes_no_more_memory() {
    const CAPACITY: u64 = 100;
    let (limiter, list) = refusing(MostRefused::new().with_capacity(100));
    let policy = per_minute("p", 1);
    for number in 0..20_000_u64 {
        refuse(&limiter, &format!("made-up-{number}"), &policy, 1).await;
        if number % 50 == 0 {
            refuse(&limiter, "alice", &policy, 1).await;
        }
    }
    // 400 of 20 400 refusals are above a hundredth, so the key is listed.
    let keys = list.top(usize::MAX);
    assert!(keys.len() <= 100, "{}", keys.len());
    let alice = &keys[0];
    assert_eq!(alice.fingerprint, fingerprint("alice"));
    assert!(alice.at_least <= 400 && 400 <= alice.at_most, "{alice}");
    assert!(alice.at_most - alice.at_least <= 20_400 / CAPACITY, "{alice}");
    assert!(alice.to_string().contains(&format!("{} to {} refusals", alice.at_least, alice.at_most)), "{alice}");
}
