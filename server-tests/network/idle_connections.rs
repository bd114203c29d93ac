//! Connections that are closed while nothing is under way.

use std::{thread, time::Duration};

use tokio::runtime;
use tollgate::{Limiter, Policy, RedisStore};

use crate::support::{redis_server::RedisServer, until};

/// Checks one after the other, so that each connection has its turn; returns how many got no verdict.
fn lost(runtime: &runtime::Runtime, limiter: &Limiter) -> usize {
    let policy = Policy::per_hour("p", 1_000_000).unwrap();
    runtime.block_on(async {
        let mut lost = 0;
        for _ in 0..8 {
            lost += usize::from(limiter.check("k", &policy, 1).await.is_err());
        }
        lost
    })
}

fn limiter(url: &str) -> Limiter {
    Limiter::new(RedisStore::builder().deadline(Duration::from_millis(500)).connect(url).unwrap())
}

/// A runtime that runs while the test waits, as a service's does.
fn runtime() -> runtime::Runtime {
    runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn no_check_fails_on_an_idle_connection_that_the_server_closed() {
    let server = RedisServer::start_with(&["--timeout", "1"]);
    for url in [server.url(), format!("{}?protocol=resp3", server.url())] {
        let (runtime, limiter) = (runtime(), limiter(&url));
        for _ in 0..2 {
            assert_eq!(lost(&runtime, &limiter), 0);
            // The server closes what was idle for a second, at its own pace.
            until("the connections are closed", || server.command("CLIENT LIST").matches("LIB-NAME").count() == 0);
            thread::sleep(Duration::from_millis(2_500));
        }
    }
}

#[test]
fn no_check_fails_after_a_restart_without_traffic() {
    let mut server = RedisServer::start();
    let (runtime, limiter) = (runtime(), limiter(&server.url()));
    for _ in 0..3 {
        assert_eq!(lost(&runtime, &limiter), 0);
        server.restart();
        // The end of a connection is noticed at once, but by another thread.
        thread::sleep(Duration::from_millis(50));
    }
}
