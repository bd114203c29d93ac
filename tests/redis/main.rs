//! What only Redis can do to a check: lose the script, go away, hang, hold something else.
#![allow(clippy::unwrap_used)]

mod address;
mod batch;
#[cfg(feature = "cluster")]
mod cluster;
mod denials;
mod errors;
mod extremes;
mod fake;
mod heal;
#[cfg(feature = "cluster")]
mod messages;
mod moved;
mod outage;
mod ready;
mod runtimes;
mod script;
mod search;
mod secrets;
#[cfg(feature = "sentinel")]
mod sentinel;
mod setup;
#[cfg(feature = "cluster")]
mod silent_slots;
#[cfg(feature = "cluster")]
mod slots;
#[path = "../support/mod.rs"]
mod support;
mod texts;
mod time;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "cluster")]
mod topology;
mod urls;
mod warm_up;

use support::redis_server::{RedisServer, calls};
use tollgate::{Limiter, Policy, RedisStore};

/// Its keys can be written down in a test.
pub(crate) fn limiter(server: &RedisServer) -> Limiter {
    Limiter::new(RedisStore::builder().plain_keys().connect(&server.url()).unwrap())
}

pub(crate) fn policy() -> Policy {
    Policy::per_hour("p", 100_000).unwrap()
}
