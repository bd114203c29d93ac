//! Bans on Redis and on a cluster.

use tollgate::{Limiter, ManualClock, store::RedisStoreBuilder};

use crate::support::{
    bans::bans_refuse_requests_that_cost_nothing, cluster::Cluster, patient, redis_server::RedisServer,
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
