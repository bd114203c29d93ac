//! Tests of `RedisStore`: scripts, outages, clusters, sentinels, TLS, URLs, configuration errors and keys.

pub(crate) mod address;
mod asked_again;
mod bad_pause;
mod bans;
mod batch;
mod blocked;
mod by_hand;
mod calendar;
mod clear;
mod cluster;
mod cluster_life;
mod config_errors;
mod credit;
mod denials;
mod error_text;
mod errors;
mod extremes;
mod fake_server;
mod first_of;
mod forecast;
mod foreign_values;
mod hash_tags;
mod held_checks;
mod holds;
mod leases;
mod moved_slot;
mod outage;
mod partial;
mod parts_during_moves;
mod random_schedules;
mod ready;
mod recovery;
mod refunds;
mod rotation;
mod runtimes;
mod script;
mod secrets;
mod sentinel;
mod sentinel_leases;
mod server_time;
mod setup;
mod shadow;
mod shards;
mod silent_slots;
mod slots;
mod slow_moves;
mod stepped_clock;
mod tls;
mod tls_fleet;
mod tls_mistakes;
mod tls_modes;
mod tls_sentinel;
mod tls_server;
mod topology;
mod urls;
mod warm_up;

use std::time::{Duration, Instant};

use crate::support::patient;
use crate::support::redis_server::{RedisServer, calls};
use tollgate::{Limiter, Policy, RedisStore};

/// A limiter with plain keys, which tests can write as literals.
pub(crate) fn limiter(server: &RedisServer) -> Limiter {
    Limiter::new(patient().plain_keys().open(&server.url()).unwrap())
}

/// A limiter with plain keys and the default deadline of 50 ms, which any check may miss on a busy machine.
pub(crate) fn with_default_deadline(server: &RedisServer) -> Limiter {
    Limiter::new(RedisStore::builder().plain_keys().open(&server.url()).unwrap())
}

/// Waits until a check has been decided.
pub(crate) async fn connected(limiter: &Limiter) {
    let start = Instant::now();
    while limiter.check("warm", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "no verdict");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) fn policy() -> Policy {
    Policy::per_hour("p", 100_000).unwrap()
}
