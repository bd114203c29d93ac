//! Checks across slots of a cluster while the master of one slot does not reply.

use std::time::{Duration, Instant};

use tollgate::{Check, Decision, ErrorKind, Limiter, Policy, RedisStore};

use super::cluster::connected;
use crate::support::cluster::{Cluster, plain_key};

/// "bar" is in a slot of the first node, "foo" in a slot of the third.
const HEALTHY: &str = "bar";
const SILENT: &str = "foo";

/// Long enough that a busy machine does not miss it, because half of these tests assert verdicts before it.
const DEADLINE: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(3_600);

/// A limiter without deny cache and breaker, so that every check is sent.
fn limiter(cluster: &Cluster) -> Limiter {
    let builder = RedisStore::builder().plain_keys().deadline(DEADLINE).deny_cache(false).breaker(None);
    Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap())
}

/// An hour's policy of one unit, which "bar" has spent.
async fn spent(limiter: &Limiter) -> Policy {
    let spent = Policy::new("spent", 1, HOUR).unwrap();
    assert!(limiter.check(HEALTHY, &spent, 1).await.unwrap().is_allowed());
    spent
}

/// Asserts a denial by the spent policy alone, before the deadline.
async fn assert_denied(limiter: &Limiter, check: Check, what: &str) -> Decision {
    let start = Instant::now();
    let decision = limiter.check_all(check).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(start.elapsed() < DEADLINE, "{what}: {:?}", start.elapsed());
    assert!(!decision.is_allowed(), "{what}");
    assert_eq!(decision.violated().map(|policy| policy.policy.name()).collect::<Vec<_>>(), ["spent"], "{what}");
    let wait = decision.retry_after().unwrap();
    assert!(wait <= HOUR && wait > HOUR - Duration::from_secs(60), "{what}: {wait:?}");
    decision
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_8_a_denial_in_one_slot_stands_while_another_slot_is_silent() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let (spent, roomy) = (spent(&limiter).await, Policy::new("roomy", 100, HOUR).unwrap());
    assert!(limiter.check(SILENT, &roomy, 1).await.unwrap().is_allowed());
    cluster.nodes[2].pause(5 * DEADLINE);
    for what in ["asked first", "asked last"] {
        let check = match what {
            "asked first" => Check::new(HEALTHY, &spent, 1).and(SILENT, &roomy, 1),
            _ => Check::new(SILENT, &roomy, 1).and(HEALTHY, &spent, 1),
        };
        let decision = assert_denied(&limiter, check, what).await;
        let unknown = decision.policies().iter().find(|policy| policy.policy.name() == "roomy").unwrap();
        // The policy of the silent slot reports no units, and counts as not violated.
        assert_eq!((unknown.violated, unknown.available, unknown.retry_after), (false, 0, None), "{what}");
    }
    // Without a denial there is no verdict.
    let free = Check::new("k", &roomy, 1).and(SILENT, &roomy, 1);
    assert_eq!(limiter.check_all(free).await.unwrap_err().kind(), ErrorKind::Deadline);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_3_a_check_that_a_slow_slot_denies_charges_no_other_slot_while_it_waits() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let (spent, roomy) = (Policy::new("spent", 1, HOUR).unwrap(), Policy::new("roomy", 100, HOUR).unwrap());
    assert!(limiter.check(SILENT, &spent, 1).await.unwrap().is_allowed());
    cluster.nodes[2].pause(DEADLINE * 7 / 10);
    let check = Check::new(HEALTHY, &roomy, 1).and(SILENT, &spent, 1);
    let denied = tokio::spawn({
        let limiter = limiter.clone();
        async move { assert_denied(&limiter, check, "slow").await }
    });
    let mut peeks = 0;
    while !denied.is_finished() {
        assert_eq!(limiter.peek(HEALTHY, &roomy).await.unwrap().available(), Some(100), "peek {peeks}");
        peeks += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = denied.await.unwrap();
    assert!(peeks > 20, "{peeks} peeks while the slot was slow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_9_a_silent_slot_counts_the_rejected_cost_once_after_it_resumes() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let counting = Policy::new("counting", 100, HOUR).unwrap().with_denials_counted(true);
    let spent = spent(&limiter).await;
    assert!(limiter.check(SILENT, &counting, 1).await.unwrap().is_allowed());
    cluster.nodes[2].pause(2 * DEADLINE);
    let check = Check::new(HEALTHY, &spent, 1).and(SILENT, &counting, 7);
    let _ = assert_denied(&limiter, check, "counted").await;
    // Waits until the pause ends.
    tokio::time::sleep(2 * DEADLINE).await;
    connected(&limiter).await;
    let start = Instant::now();
    while limiter.peek(SILENT, &counting).await.unwrap().available() == Some(99) {
        assert!(start.elapsed() < 5 * DEADLINE, "never counted");
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(limiter.peek(SILENT, &counting).await.unwrap().available(), Some(100 - 1 - 7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_in_one_slot_stands_despite_an_error_in_another_slot() {
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    let (spent, roomy) = (spent(&limiter).await, Policy::new("roomy", 100, HOUR).unwrap());
    assert!(limiter.check(SILENT, &roomy, 1).await.unwrap().is_allowed());
    // A value of another type, for which its node returns an error at once.
    let bad = Policy::new("bad", 1, HOUR).unwrap();
    cluster.nodes[2].command(&format!("SADD {} x", plain_key(SILENT, &bad)));
    assert_eq!(limiter.check(SILENT, &bad, 1).await.unwrap_err().kind(), ErrorKind::BadKey);
    for number in 0..20 {
        let check = Check::new(SILENT, &bad, 1).and(HEALTHY, &spent, 1);
        let _ = assert_denied(&limiter, check, &format!("bad key, check {number}")).await;
    }
    cluster.nodes[2].kill();
    for number in 0..20 {
        let check = Check::new(SILENT, &roomy, 1).and(HEALTHY, &spent, 1);
        let _ = assert_denied(&limiter, check, &format!("killed, check {number}")).await;
    }
}

/// Number of checks: enough to open the breaker of the silent slots, and a few more.
const ATTEMPTS: usize = 60;
/// Short, because these tests wait for it until the breaker opens.
const SHORT_DEADLINE: Duration = Duration::from_millis(150);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_in_one_slot_stands_while_the_breaker_of_another_slot_is_open() {
    let cluster = Cluster::start();
    let store = RedisStore::builder().plain_keys().deny_cache(false).deadline(SHORT_DEADLINE);
    let limiter = Limiter::new(store.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    connected(&limiter).await;
    let (spent, roomy) = (spent(&limiter).await, Policy::new("roomy", 100_000, HOUR).unwrap());
    assert!(limiter.check(SILENT, &roomy, 1).await.unwrap().is_allowed());
    cluster.nodes[2].signal("STOP");
    let start = Instant::now();
    while !limiter.is_breaker_open() {
        assert!(limiter.check(SILENT, &roomy, 1).await.is_err());
        assert!(start.elapsed() < Duration::from_secs(30), "the breaker does not open");
    }
    for number in 0..ATTEMPTS {
        let both = match number % 2 {
            0 => Check::new(SILENT, &roomy, 1).and(HEALTHY, &spent, 1),
            _ => Check::new(HEALTHY, &spent, 1).and(SILENT, &roomy, 1),
        };
        let _ = assert_denied(&limiter, both, &format!("check {number}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_slot_opens_its_own_breaker_and_no_other() {
    let cluster = Cluster::start();
    let store = RedisStore::builder().plain_keys().deny_cache(false).deadline(SHORT_DEADLINE);
    let limiter = Limiter::new(store.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    connected(&limiter).await;
    let roomy = Policy::new("roomy", 100_000, HOUR).unwrap();
    for key in [HEALTHY, SILENT] {
        assert!(limiter.check(key, &roomy, 1).await.unwrap().is_allowed());
    }
    cluster.nodes[2].signal("STOP");
    let start = Instant::now();
    for _ in 0..ATTEMPTS {
        let both = Check::new(HEALTHY, &roomy, 1).and(SILENT, &roomy, 1);
        assert!(limiter.check_all(both).await.is_err());
        let well = limiter.check(HEALTHY, &roomy, 1).await;
        assert!(well.is_ok(), "{well:?}");
    }
    assert!(limiter.is_breaker_open());
    // Without a breaker each check would have waited for the deadline.
    assert!(start.elapsed() < 40 * SHORT_DEADLINE, "{:?}", start.elapsed());
}
