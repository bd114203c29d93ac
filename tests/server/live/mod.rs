//! Limits that are replaced while a service counts on Redis.

// The modules that the memory store runs as well.
#[path = "../../live/changes.rs"]
mod changes;
#[path = "../../live/files.rs"]
mod files;
#[path = "../../live/load.rs"]
mod load;

use std::time::Duration;

use tollgate::{Limiter, ManualClock, RedisStore};

use crate::support::{exclusively, redis_server::RedisServer};

fn start() -> changes::Fixture {
    let (clock, server) = (ManualClock::default(), RedisServer::start());
    let store = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).open(&server.url());
    changes::Fixture::new(Limiter::new(store.unwrap()), clock, server)
}

changes::suite!(start);

/// The deny cache is on, as by default. Takes the time of 40 changes of the file.
#[test]
fn law_1_and_2_hold_while_the_file_changes_ten_times_a_second() {
    let server = RedisServer::start();
    // The runtime may be held up by the other tests.
    let store = || RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    exclusively(|| load::run("redis", 4, || Limiter::new(store())));
}
