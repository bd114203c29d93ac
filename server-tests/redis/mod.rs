//! What only Redis can do to a check: lose the script, go away, hang, hold something else.

mod address;
mod batch;
mod cluster;
mod denials;
mod errors;
mod extremes;
mod fake;
mod heal;
mod messages;
mod moved;
mod outage;
mod ready;
mod runtimes;
mod script;
mod search;
mod secrets;
mod sentinel;
mod setup;
mod silent_slots;
mod slots;
mod texts;
mod time;
mod tls;
mod topology;
mod urls;
mod warm_up;

use crate::support::redis_server::{RedisServer, calls};
use tollgate::{Limiter, Policy, RedisStore};

/// Its keys can be written down in a test.
pub(crate) fn limiter(server: &RedisServer) -> Limiter {
    Limiter::new(RedisStore::builder().plain_keys().connect(&server.url()).unwrap())
}

pub(crate) fn policy() -> Policy {
    Policy::per_hour("p", 100_000).unwrap()
}
