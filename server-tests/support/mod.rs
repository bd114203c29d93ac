//! Servers and networks to test on, and what the tests without servers share.
#![allow(dead_code, missing_debug_implementations, unreachable_pub, unused_imports, clippy::unwrap_used)]

pub mod cluster;
pub mod judge;
pub mod link;
pub mod proxy;
pub mod redis_server;
pub mod sentinel;
#[path = "../../tests/support/mod.rs"]
mod shared;

use std::{
    thread,
    time::{Duration, Instant},
};

pub use shared::*;

/// Waits until it is so. Servers take real time to agree.
pub fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        // A sentinel that was kept from running for two seconds does nothing for thirty.
        assert!(start.elapsed() < Duration::from_secs(60), "not yet: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
