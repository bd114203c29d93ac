//! `RedisStore::clear`.

use std::time::Duration;

use tollgate::{Calendar, Limiter, Policy, RedisStore, policy::HoldSettings, redis};

use crate::support::redis_server::{RedisServer, calls};
use crate::support::{cluster::Cluster, connect};

const MINUTE: Duration = Duration::from_secs(60);

/// Charges, holds and bans, each under a policy of its own. Returns the keys that Redis has then.
async fn count_everything(limiter: &Limiter, subjects: u32) -> u64 {
    let plain = Policy::per_hour("plain", 10).unwrap();
    let banning = Policy::per_hour("banning", 1).unwrap().ban_after(1, MINUTE);
    let held = Policy::per_hour("held", 10).unwrap().with_holds(HoldSettings::new());
    let billed = Policy::calendar("billed", 10, Calendar::yearly().zone("+05:30")).unwrap();
    for subject in 0..subjects {
        let subject = format!("subject-{subject}");
        assert!(limiter.check(&*subject, &billed, 10).await.unwrap().is_allowed());
        assert!(limiter.check(&*subject, &plain, 10).await.unwrap().is_allowed());
        assert!(limiter.check(&*subject, &banning, 1).await.unwrap().is_allowed());
        assert!(!limiter.check(&*subject, &banning, 1).await.unwrap().is_allowed());
        std::mem::forget(limiter.hold(&*subject, &held, 10).await.unwrap());
    }
    // Two counts, a count with its denials, and holds without a charge.
    5 * u64::from(subjects)
}

async fn all_are_free(limiter: &Limiter, subjects: u32) {
    let plain = Policy::per_hour("plain", 10).unwrap();
    let banning = Policy::per_hour("banning", 1).unwrap().ban_after(1, MINUTE);
    let held = Policy::per_hour("held", 10).unwrap().with_holds(HoldSettings::new());
    let billed = Policy::calendar("billed", 10, Calendar::yearly().zone("+05:30")).unwrap();
    for subject in 0..subjects {
        let subject = format!("subject-{subject}");
        assert_eq!(limiter.peek(&*subject, &billed).await.unwrap().available(), Some(10), "{subject}");
        assert_eq!(limiter.peek(&*subject, &plain).await.unwrap().available(), Some(10), "{subject}");
        assert_eq!(limiter.peek(&*subject, &banning).await.unwrap().available(), Some(1), "{subject}");
        assert_eq!(limiter.peek(&*subject, &held).await.unwrap().available(), Some(10), "{subject}");
    }
}

#[tokio::test]
async fn all_counts_of_the_prefix_are_removed_in_steps_and_nothing_else_is() {
    let server = RedisServer::start();
    let builder = RedisStore::builder().prefix("a*[b]?:").deadline(Duration::from_secs(10));
    let store = builder.open(&server.url()).unwrap();
    let limiter = Limiter::new(store.clone());
    let mut connection = server.connection();
    // Other prefixes, which the pattern of this one must not find, and values of other programs.
    let others =
        ["ax[b]y:{s}:p:l5:1m", "aa*[b]?:{s}:p:l5:1m", "a*[b]?:{s}:cart", "a*[b]?:instances", "a*[b]?:", "{s}:p:l5:1m"];
    for key in others {
        redis::cmd("SET").arg(key).arg("x").exec(&mut connection).unwrap();
    }
    let mut pipeline = redis::pipe();
    for number in 0..3_000 {
        pipeline.cmd("SET").arg(format!("a*[b]?:{{{number}}}:p:l5:1m")).arg("x").ignore();
    }
    pipeline.exec(&mut connection).unwrap();
    let own = 3_000 + count_everything(&limiter, 10).await;
    let before: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(before, own + others.len() as u64);

    assert_eq!(store.clear().await.unwrap(), own);
    let mut left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    left.sort();
    let mut expected = others.to_vec();
    expected.sort();
    assert_eq!(left, expected);
    assert!(calls(&server, "scan") >= 3 && calls(&server, "keys") == 1, "a scan in steps");
    // Denials that this process remembers are forgotten as well.
    all_are_free(&limiter, 10).await;
    assert_eq!(store.clear().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counts_of_every_master_of_a_cluster_are_removed() {
    let cluster = Cluster::start();
    // Few hash tags, so that some keys share a slot, and a tag for each subject.
    for tags in [Some(16), None] {
        let builder = RedisStore::builder().cluster_hash_tags(tags).deadline(Duration::from_secs(10));
        let store = builder.open_cluster([cluster.nodes[0].url()]).unwrap();
        let limiter = Limiter::new(store.clone());
        let own = count_everything(&limiter, 40).await;
        let sizes = cluster.nodes.iter().map(|node| {
            let size: u64 = redis::cmd("DBSIZE").query(&mut node.connection()).unwrap();
            size
        });
        let sizes: Vec<u64> = sizes.collect();
        assert!(sizes.iter().filter(|size| **size > 0).count() >= 3, "{sizes:?}");
        assert_eq!(store.clear().await.unwrap(), own);
        all_are_free(&limiter, 40).await;
    }
}

#[tokio::test]
async fn a_reply_that_is_later_than_the_deadline_does_not_end_the_scan() {
    let server = RedisServer::start();
    let store = RedisStore::builder().deadline(Duration::from_millis(400)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store.clone());
    let own = count_everything(&limiter, 2).await;
    server.pause(Duration::from_millis(600));
    assert_eq!(store.clear().await.unwrap(), own);
    all_are_free(&limiter, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_slot_that_moves_are_removed() {
    let cluster = Cluster::start();
    // One hash tag: all keys are in one slot.
    let builder = RedisStore::builder().cluster_hash_tags(Some(1)).deadline(Duration::from_secs(10));
    let store = builder.open_cluster([cluster.nodes[0].url()]).unwrap();
    let limiter = Limiter::new(store.clone());
    let own = count_everything(&limiter, 4).await;
    let (slot, from) = cluster.slot_of(&store.redis_key("subject-0", &Policy::per_hour("plain", 10).unwrap()));
    cluster.begin_move(slot, from, (from + 1) % 3);
    assert_eq!(store.clear().await.unwrap(), own);
    all_are_free(&limiter, 4).await;
}

#[tokio::test]
async fn a_server_that_refuses_to_scan_is_an_error_that_says_so() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    redis::cmd("ACL").arg(&["SETUSER", "default", "-scan"]).exec(&mut connection).unwrap();
    let error = connect(&server.url()).clear().await.unwrap_err();
    assert!(error.to_string().contains("scan"), "{error}");
}
