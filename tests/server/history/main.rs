//! Laws 1, 2 and 5 from outside: several processes on one Redis; the history is judged by the times of the store.
#![allow(clippy::unwrap_used)]

mod first_of;
mod holds;
mod judge;
#[path = "../support/mod.rs"]
mod support;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::{thread, time::Duration};

use support::{is_thorough, redis_server::RedisServer};

const PROCESSES: u64 = 4;

/// The number of requests of a process: a fifth of these, except in `tests/run --all`.
fn requests(all: u64) -> u64 {
    if is_thorough() { all } else { all / 5 }
}

#[test]
fn law_1_2_and_5_hold_for_the_requests_of_four_processes_with_random_costs() {
    let server = RedisServer::start();
    judge::judge(&worker::run_all(&server.url(), PROCESSES, requests(250_000), 256));
}

#[test]
fn law_1_2_and_5_hold_while_the_script_cache_is_flushed_every_ten_milliseconds() {
    let server = RedisServer::start();
    let done = AtomicBool::new(false);
    let history = thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = server.connection();
            while !done.load(Ordering::Relaxed) {
                let (): () = tollgate::redis::cmd("SCRIPT").arg("FLUSH").query(&mut connection).unwrap();
                thread::sleep(Duration::from_millis(10));
            }
        });
        let history = worker::run_all(&server.url(), PROCESSES, requests(50_000), 64);
        done.store(true, Ordering::Relaxed);
        history
    });
    judge::judge(&history);
}

/// Not a test: the entry point of the worker processes.
#[test]
#[ignore = "started by the tests above"]
fn worker_process() {
    worker::main();
}
