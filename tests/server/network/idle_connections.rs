//! Connections that the server closes while no check is in flight.

use std::{thread, time::Duration};

use tokio::runtime;
use tollgate::{Limiter, Policy, RedisStore};

use crate::support::{redis_server::RedisServer, until};

/// Sends sequential checks, which use the connections in turn; returns how many failed.
fn failed_checks(runtime: &runtime::Runtime, limiter: &Limiter) -> usize {
    let policy = Policy::per_hour("p", 1_000_000).unwrap();
    runtime.block_on(async {
        let mut failed_checks = 0;
        for _ in 0..8 {
            failed_checks += usize::from(limiter.check("k", &policy, 1).await.is_err());
        }
        failed_checks
    })
}

fn limiter(url: &str) -> Limiter {
    Limiter::new(RedisStore::builder().deadline(Duration::from_millis(500)).open(url).unwrap())
}

/// A multi-threaded runtime, which also runs while the test thread waits, as in a service.
fn runtime() -> runtime::Runtime {
    runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn no_check_fails_on_an_idle_connection_that_the_server_closed() {
    let server = RedisServer::start_with(&["--timeout", "1"]);
    for url in [server.url(), format!("{}?protocol=resp3", server.url())] {
        let (runtime, limiter) = (runtime(), limiter(&url));
        for _ in 0..2 {
            assert_eq!(failed_checks(&runtime, &limiter), 0);
            // The server closes connections that are idle for a second, with some delay.
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
        assert_eq!(failed_checks(&runtime, &limiter), 0);
        server.restart();
        // Another thread notices the closed connections.
        thread::sleep(Duration::from_millis(50));
    }
}
