//! `RedisStore::open_holds`: what is held, for inspection by hand.

use std::time::Duration;

use tollgate::{
    ManualClock, Policy, RedisStore,
    policy::{Holds, Unsettled},
    store::{HoldChange, OpenHolds},
};

use super::{available, builder, change, hold, with_clock};
use crate::support::{
    cluster::Cluster,
    redis_server::{RedisServer, calls},
};

const SECOND: Duration = Duration::from_secs(1);

/// Units, open holds, overdue holds, and the seconds until the last open hold ends.
fn figures(holds: OpenHolds) -> (u64, u64, u64, u64) {
    (holds.units, holds.open, holds.overdue, holds.last_end.as_secs())
}

async fn held(store: &RedisStore, policy: &Policy) -> (u64, u64, u64, u64) {
    figures(store.open_holds("alice", policy).await.unwrap())
}

#[tokio::test]
async fn open_holds_are_counted_until_they_are_settled_and_overdue_ones_are_told_apart() {
    let (server, clock) = (RedisServer::start(), ManualClock::at_us(1_700_000_000_000_000));
    let store = with_clock(&server, &clock);
    let plain = Policy::per_minute("tokens", 1_000).unwrap();
    let tokens = plain.clone().with_holds(Holds::new().with_ttl(10 * SECOND)).unwrap();
    assert_eq!(held(&store, &tokens).await, (0, 0, 0, 0));

    let first = hold(&store, "alice", &tokens, 300).await.unwrap();
    clock.advance(4 * SECOND);
    hold(&store, "alice", &tokens, 200).await.unwrap();
    assert_eq!(held(&store, &tokens).await, (500, 2, 0, 10));
    assert_eq!(held(&store, &plain).await, (500, 2, 0, 10), "the policy needs no holds itself");
    change(&store, &first, HoldChange::Renew).await;
    clock.advance(SECOND);
    change(&store, &first, HoldChange::Settle(50)).await;
    assert_eq!(held(&store, &tokens).await, (200, 1, 0, 9), "a settled hold is gone");

    clock.advance(9 * SECOND);
    assert_eq!(held(&store, &tokens).await, (200, 0, 1, 0), "its time-to-live has passed");
    assert_eq!(available(&store, "alice", &plain).await, 950, "looking at a hold does not end it");
    assert_eq!(available(&store, "alice", &tokens).await, 750, "the next check does");
    assert_eq!(held(&store, &tokens).await, (0, 0, 0, 0));
}

#[tokio::test]
async fn thousands_of_open_holds_are_counted_in_short_commands_on_both_protocols() {
    let server = RedisServer::start();
    let resp2 = format!("{}?protocol=resp2", server.url());
    let slots = Holds::new().with_unsettled(Unsettled::Release);
    let policy = Policy::per_minute("slots", 10_000).unwrap().with_holds(slots).unwrap();
    for (url, holds) in [(server.url(), 1_500), (resp2, 2_500)] {
        let store = builder().open(&url).unwrap();
        for _ in 0..holds - open_now(&store, &policy).await {
            hold(&store, "alice", &policy, 2).await.unwrap();
        }
        let before = calls(&server, "zrange");
        let found = store.open_holds("alice", &policy).await.unwrap();
        assert_eq!((found.units, found.open), (holds * 2, holds));
        assert!(found.last_end > 50 * SECOND && found.last_end <= 60 * SECOND, "{found:?}");
        // One for the head, the others for 1 000 members each.
        assert_eq!(calls(&server, "zrange") - before, holds / 1_000 + 2);
    }
}

async fn open_now(store: &RedisStore, policy: &Policy) -> u64 {
    store.open_holds("alice", policy).await.unwrap().open
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_holds_are_found_on_a_cluster_with_hashed_keys() {
    let cluster = Cluster::start();
    let store = RedisStore::builder().deadline(10 * SECOND).open_cluster([cluster.nodes[0].url()]).unwrap();
    let uploads = Policy::concurrent("uploads", 3).unwrap();
    for key in ["alice", "bob", "carol", "dave"] {
        hold(&store, key, &uploads, 2).await.unwrap();
        let found = store.open_holds(key, &uploads).await.unwrap();
        assert_eq!((found.units, found.open, found.overdue), (2, 1, 0), "{key}");
    }
}

#[tokio::test]
async fn a_value_that_is_no_set_of_holds_is_an_error_that_names_no_key() {
    let server = RedisServer::start();
    let store = builder().open(&server.url()).unwrap();
    let uploads = Policy::concurrent("uploads", 3).unwrap();
    server.command("SET tollgate:{alice}:uploads(holds):l5:1s poison");
    let error = store.open_holds("alice", &uploads).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE") && !error.to_string().contains("alice"), "{error}");
}
