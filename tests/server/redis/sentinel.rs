//! A master behind sentinels, and failovers.

use std::time::{Duration, Instant};

use tollgate::{ErrorKind, Limiter, Policy, RedisStore, policy::HoldSettings};

use super::policy;
use crate::support::proxy::{Fault, Proxy};
use crate::support::{patient, says, until};
use crate::support::{ports::free_port, redis_server::RedisServer, sentinel::Trio};

fn limiter(trio: &Trio) -> Limiter {
    let urls: Vec<_> = trio.sentinels.iter().map(RedisServer::url).collect();
    let urls = urls.iter().map(String::as_str);
    Limiter::new(RedisStore::builder().deadline(Duration::from_secs(1)).open_sentinel(urls, Trio::NAME).unwrap())
}

/// Whether the server has the role. Sentinels disconnect all clients when they change a role, this query included.
fn role(server: &RedisServer, role: &str) -> bool {
    server.try_command("ROLE").is_ok_and(|reply| reply.contains(role))
}

async fn recovered(limiter: &Limiter, within: Duration) {
    let start = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < within, "did not recover");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requested_failover_and_the_loss_of_the_master_are_followed() {
    let mut trio = Trio::start(Duration::from_millis(500));
    let limiter = limiter(&trio);
    recovered(&limiter, Duration::from_secs(2)).await;
    assert!(trio.master.command("DBSIZE").starts_with(":1"));

    // Requested failover: the old master becomes a replica and keeps the store's connections open.
    trio.sentinels[0].command("SENTINEL FAILOVER mymaster");
    until("the replica is the master", || role(&trio.replica, "master"));
    until("the master is a replica", || role(&trio.master, "slave"));
    recovered(&limiter, Duration::from_secs(2)).await;
    for _ in 0..20 {
        assert!(limiter.check("k", &policy(), 1).await.is_ok());
    }

    // Killed master: the sentinels agree that it is down and promote the other server.
    until("the old master is in sync", || trio.master.command("INFO replication").contains("master_link_status:up"));
    until("the sentinels report the new master", || {
        trio.sentinels.iter().all(|sentinel| Trio::reports_master(sentinel, &trio.replica))
    });
    trio.replica.kill();
    let error = limiter.check("k", &policy(), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    until("the old master is the master again", || role(&trio.master, "master"));
    recovered(&limiter, Duration::from_secs(3)).await;
}

/// Returns after the sentinels have made `new` the master. They leave the old one as it is for about ten seconds more.
fn fail_over(trio: &Trio, old: &RedisServer, new: &RedisServer) {
    until("the servers are in sync", || old.has_replicas_in_sync(1));
    until("the sentinels agree", || trio.sentinels.iter().all(|sentinel| Trio::reports_master(sentinel, old)));
    until("a sentinel begins", || trio.sentinels[0].command("SENTINEL FAILOVER mymaster").starts_with("+OK"));
    until("there is a new master", || role(new, "master"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_a_store_leaves_a_master_as_soon_as_sentinels_name_another_one() {
    let trio = Trio::start(Duration::from_secs(60));
    let limiter = limiter(&trio);
    // Sentinels tell one another of a new master every two seconds, and the store asks them once a second. The last
    // renewal that the new master knows must outlast that, and must end before the old master becomes a replica.
    let slot = Policy::concurrent("slot", 1).unwrap().with_holds(HoldSettings::new().with_ttl(Duration::from_secs(8)));
    recovered(&limiter, Duration::from_secs(2)).await;
    let _upload = limiter.hold("k", &slot, 1).await.unwrap().into_result().unwrap();
    for (old, new) in [(&trio.master, &trio.replica), (&trio.replica, &trio.master)] {
        fail_over(&trio, old, new);
        let (start, size) = (Instant::now(), new.command("DBSIZE"));
        for number in 0.. {
            let _ = limiter.check(format!("{number}"), &policy(), 1).await;
            if new.command("DBSIZE") != size {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(5), "checks are still sent to the old master");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // What the old master has counted since then is lost when it becomes a replica.
        let mut demoted = None;
        while demoted.is_none_or(|at: Instant| at.elapsed() < Duration::from_secs(1)) {
            let second = limiter.hold("k", &slot, 1).await;
            assert!(!second.is_ok_and(|second| second.is_allowed()), "two hold a slot of one");
            if demoted.is_none() && role(old, "slave") {
                demoted = Some(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_is_a_misconfiguration_that_names_it() {
    let trio = Trio::start(Duration::from_secs(60));
    let urls: Vec<_> = trio.sentinels.iter().map(RedisServer::url).collect();
    let store = patient().open_sentinel(urls.iter().map(String::as_str), "mymaster2").unwrap();
    let error = Limiter::new(store).check("k", &policy(), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured, "{error}");
    assert!(error.to_string().contains("correct the name mymaster2"), "{error}");
}

#[tokio::test]
async fn distant_sentinels_are_reached_and_do_not_delay_a_near_one() {
    let trio = Trio::start(Duration::from_secs(60));
    let proxies: Vec<_> = trio.sentinels.iter().map(|sentinel| Proxy::to(sentinel.port())).collect();
    let through = |deadline| {
        let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
        let builder = RedisStore::builder().deadline(deadline);
        Limiter::new(builder.open_sentinel(urls.iter().map(String::as_str), Trio::NAME).unwrap())
    };
    // A query of a sentinel takes three round trips.
    for proxy in &proxies {
        proxy.set(Fault::Latency(Duration::from_millis(80)));
    }
    recovered(&through(Duration::from_secs(3)), Duration::from_secs(3)).await;

    for proxy in &proxies[..2] {
        proxy.set(Fault::Mute);
    }
    proxies[2].set(Fault::Pass);
    let start = Instant::now();
    let _ = through(Duration::from_secs(3)).check("k", &policy(), 1).await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
}

#[tokio::test]
async fn unreachable_sentinels_are_an_error_in_time() {
    let unreachable = format!("redis://127.0.0.1:{}", free_port());
    let limiter = Limiter::new(RedisStore::builder().open_sentinel([unreachable.as_str()], "mymaster").unwrap());
    let start = Instant::now();
    let error = limiter.check("k", &policy(), 1).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Unavailable, false), "{error}");
    assert!(start.elapsed() < Duration::from_millis(500));
}

#[test]
fn a_login_and_a_database_are_read_from_the_masters_url_and_invalid_urls_are_errors() {
    let connect =
        |sentinels: &[&str], master: &str| RedisStore::builder().open_sentinel(sentinels.iter().copied(), master);
    let store = connect(&["redis://:sesame@127.0.0.1:1"], "redis://user:hunter2@mymaster/3").unwrap();
    let shown = format!("{store:?}");
    assert!(shown.contains("mymaster") && !shown.contains("hunter2") && !shown.contains("sesame"), "{shown}");
    for (sentinels, master) in [
        (&[][..], "mymaster"),
        (&["redis://127.0.0.1:1"], ""),
        (&["redis://127.0.0.1:1"], ":hunter2@mymaster"),
        (&["nonsense"], "mymaster"),
    ] {
        says(
            connect(sentinels, master).unwrap_err(),
            "the Redis URL (not shown, it may hold a password) cannot be used: ",
        );
    }
}
