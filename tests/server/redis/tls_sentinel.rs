//! Sentinels and clusters with TLS: how soon a dial that is lost is followed by another one.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tollgate::{Limiter, RedisStore, store::RedisStoreBuilder};

use super::policy;
use super::tls_server::{Authority, TlsServer, node_arguments};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{ports::free_port, until};

fn builder(roots: String) -> RedisStoreBuilder {
    let builder = RedisStore::builder().root_certificates(roots).pool_size(1);
    builder.deadline(Duration::from_millis(200)).first_dial_deadline(Duration::from_secs(5))
}

/// Checks without a verdict for this time.
async fn without_verdict(limiter: &Limiter, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        let _ = limiter.check("k", &policy(), 1).await;
        sleep(Duration::from_millis(10)).await;
    }
    assert!(limiter.check("k", &policy(), 1).await.is_err());
}

/// Asserts that there are verdicts again in time.
async fn recovers(limiter: &Limiter) {
    let end = Instant::now();
    while limiter.check("k", &policy(), 1).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(end.elapsed() < Duration::from_secs(3), "{:?}", end.elapsed());
}

/// A master that hangs accepts connections, and answers no handshake. Waits for real servers.
#[tokio::test]
async fn a_failover_from_a_master_with_tls_that_hangs_is_followed_at_once() {
    let (hung, next, directory) = (TlsServer::start("no"), TlsServer::start("no"), Directory::new());
    let configuration = format!("sentinel monitor mymaster 127.0.0.1 {} 1\n", hung.port);
    let sentinel = RedisServer::start_sentinel(&directory.write("sentinel.conf", configuration), free_port());
    until("the sentinel knows the master", || sentinel.command("SENTINEL MASTERS").contains("mymaster"));
    let builder = builder(hung.authority.pem() + &next.authority.pem());
    let limiter = Limiter::new(builder.open_sentinel([sentinel.url()], "rediss://mymaster").unwrap());
    assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());

    hung.server.signal("STOP");
    // Two dials take long by then.
    without_verdict(&limiter, Duration::from_secs(8)).await;
    sentinel.command("SENTINEL REMOVE mymaster");
    sentinel.command(&format!("SENTINEL MONITOR mymaster 127.0.0.1 {} 1", next.port));
    recovers(&limiter).await;
}

/// The sentinel has another way through the network than the master. Waits for real servers.
#[tokio::test]
async fn a_handshake_with_a_master_that_is_lost_begins_again_at_once_although_its_sentinel_answers() {
    let master = TlsServer::start("no");
    let proxy = Proxy::to(master.port);
    let sentinel = master.start_sentinel(proxy.port(), "no");
    let limiter =
        Limiter::new(builder(master.authority.pem()).open_sentinel([&sentinel.url], "rediss://mymaster").unwrap());
    assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());

    proxy.set(Fault::BlackHole);
    without_verdict(&limiter, Duration::from_secs(3)).await;
    proxy.set(Fault::Pass);
    recovers(&limiter).await;
}

/// A service starts before its cluster is formed. Waits for a real server.
#[tokio::test]
async fn a_cluster_with_tls_that_comes_up_late_is_found_at_once() {
    let authority = Authority::new();
    let identity = authority.issue("127.0.0.1");
    let bus = free_port().to_string();
    let arguments = [&["--tls-auth-clients", "no"], &node_arguments(&bus)[..]].concat();
    let server = TlsServer::start_with(authority, identity, &arguments);
    let limiter = Limiter::new(builder(server.authority.pem()).open_cluster([server.url()]).unwrap());
    without_verdict(&limiter, Duration::from_secs(8)).await;
    server.own_all_slots();
    recovers(&limiter).await;
}
