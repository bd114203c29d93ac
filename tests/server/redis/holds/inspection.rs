//! `RedisStore::open_holds`: what is held, for inspection by hand.

use std::time::Duration;

use tollgate::store::{HoldChange, OpenHolds, Store};
use tollgate::{Check, ErrorKind, Policy, RedisStore, policy::HoldSettings, redis};

use super::{answer, available, builder, change, clock_at, hold, with_clock};
use crate::support::cluster::Cluster;
use crate::support::redis_server::{RedisServer, calls};

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
    let (server, clock) = (RedisServer::start(), clock_at(1_700_000_000_000_000));
    let store = with_clock(&server, &clock);
    let plain = Policy::per_minute("tokens", 1_000).unwrap();
    let tokens = plain.clone().with_holds(HoldSettings::new().with_ttl(10 * SECOND));
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
    let slots = HoldSettings::new().with_unsettled_released(true);
    let policy = Policy::per_minute("slots", 10_000).unwrap().with_holds(slots);
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

/// Inspection must not report holds under which the service gets no verdict.
#[tokio::test]
async fn holds_that_checks_refuse_are_an_error_of_inspection_and_others_are_not() {
    let server = RedisServer::start();
    let store = builder().open(&server.url()).unwrap();
    let uploads = Policy::concurrent("uploads", 3).unwrap();
    let head = |covered: f64| [b"t", &[0; 16][..], &covered.to_le_bytes()].concat();
    let (later, slot) = (4e15, |name: &str| (name.as_bytes().to_vec(), 4e15));
    let cases = [
        (vec![(head(later), -1.0), slot("12345678"), (b"12345678c".to_vec(), 2e20)], true),
        (vec![(head(later), -1.0), slot("1234567890")], false),
        (vec![(head(f64::NAN), -1.0), slot("12345678")], false),
        (vec![(head(-1.0), -1.0), slot("12345678")], false),
        (vec![(head(2f64.powi(54)), -1.0), slot("12345678")], false),
    ];
    for (number, (members, is_read)) in cases.into_iter().enumerate() {
        server.command("FLUSHALL");
        let mut command = redis::cmd("ZADD");
        command.arg("tollgate:{alice}:uploads(holds):l5:1s");
        for (member, score) in members {
            command.arg(score).arg(member);
        }
        command.exec(&mut server.connection()).unwrap();
        let checked = answer(store.check(&Check::hold("alice", &uploads, 1))).await.map(drop);
        let found = store.open_holds("alice", &uploads).await.map(drop);
        for result in [checked, found] {
            assert_eq!(
                result.map_err(|error| error.kind()),
                if is_read { Ok(()) } else { Err(ErrorKind::BadKey) },
                "{number}"
            );
        }
    }
}
