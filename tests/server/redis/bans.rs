//! Bans on Redis and on a cluster.

use std::time::Duration;

use tollgate::{Limiter, ManualClock, store::RedisStoreBuilder};

use crate::support::{
    bans::{
        bans_refuse_requests_that_cost_nothing, five_failed_logins_then_an_hour, many_logins_at_once,
        settlements_that_do_not_fit_are_denials,
    },
    cluster::Cluster,
    patient,
    proxy::{Fault, Proxy},
    redis_server::RedisServer,
};

fn builder(clock: &ManualClock) -> RedisStoreBuilder {
    patient().plain_keys().clock(clock.clone())
}

#[tokio::test]
async fn on_redis_a_ban_refuses_every_request_of_the_key() {
    let server = RedisServer::start();
    for deny_cache in [true, false] {
        server.command("FLUSHALL");
        let clock = ManualClock::default();
        let limiter = Limiter::new(builder(&clock).deny_cache(deny_cache).open(&server.url()).unwrap());
        bans_refuse_requests_that_cost_nothing(&limiter, &clock).await;
    }
}

#[tokio::test]
async fn on_a_cluster_a_ban_refuses_every_request_of_the_key() {
    let cluster = Cluster::start();
    let clock = ManualClock::default();
    let limiter = Limiter::new(builder(&clock).open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    bans_refuse_requests_that_cost_nothing(&limiter, &clock).await;
}

/// 200 attempts at once, each with a round trip of 5 ms: no more than five are judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_on_a_distant_redis_five_failed_logins_ban_for_an_hour() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::Latency(Duration::from_micros(2_500)));
    let clock = ManualClock::default();
    let limiter = Limiter::new(builder(&clock).open(&proxy.url()).unwrap());
    many_logins_at_once(&limiter, &clock).await;
    clock.advance(Duration::from_secs(7_200));
    five_failed_logins_then_an_hour(&limiter, &clock).await;
}

#[tokio::test]
async fn on_redis_a_settlement_that_does_not_fit_is_a_denial() {
    let server = RedisServer::start();
    for deny_cache in [true, false] {
        let clock = ManualClock::default();
        let prefix = format!("{deny_cache}:");
        let limiter = builder(&clock).prefix(prefix).deny_cache(deny_cache).open(&server.url()).unwrap();
        settlements_that_do_not_fit_are_denials(&Limiter::new(limiter), &clock).await;
    }
}

#[tokio::test]
async fn on_a_cluster_five_failed_logins_ban_for_an_hour() {
    let cluster = Cluster::start();
    let clock = ManualClock::default();
    let limiter = Limiter::new(builder(&clock).open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    five_failed_logins_then_an_hour(&limiter, &clock).await;
    settlements_that_do_not_fit_are_denials(&limiter, &clock).await;
}
