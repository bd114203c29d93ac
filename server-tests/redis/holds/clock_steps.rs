//! The server's clock is set back and forward while holds are open.
//!
//! A test cannot set the clock of a server, so these tests patch the script to read the time from a key instead of
//! TIME, as those of `lua::clock_steps`.

use tollgate::redis::{self, Connection, Script};

use crate::{lua::call::SCRIPT, support::redis_server::RedisServer};

const START_US: u64 = 1_767_225_600_000_000;
const SECOND_US: u64 = 1_000_000;
const LIMIT: u32 = 10;
const TTL_US: u64 = 30 * SECOND_US;
const WINDOW_US: u64 = 60 * SECOND_US;

/// A server whose clock the test controls, and its only count with its holds.
struct SteppedClock {
    connection: Connection,
    script: Script,
    algorithm: u8,
    now_us: u64,
}

/// The usages of holds.
const CHECK: u8 = 0;
const SETTLE: u8 = 1;

impl SteppedClock {
    fn new(server: &RedisServer, algorithm: u8) -> Self {
        let real = "local time = call('TIME')";
        assert!(SCRIPT.contains(real));
        let script = Script::new(&SCRIPT.replace(real, "local time = {0, call('GET', 'clock')}"));
        Self { connection: server.connection(), script, algorithm, now_us: START_US }
    }

    /// Sends one charge beside its holds. Returns whether it fits, or whether the hold was open; and the held units.
    fn call(&mut self, cost: u32, usage: u8, id: u64, actual: u32) -> (bool, u64) {
        let (): () = redis::cmd("SET").arg("clock").arg(self.now_us).query(&mut self.connection).unwrap();
        let parameter = if self.algorithm == 4 { f64::from(LIMIT) } else { 1.0 };
        let mut runs = vec![(1 << (self.algorithm - 1)) + 32 + 128, 1, 0, 2, self.algorithm + 8, 0];
        runs.extend(LIMIT.to_le_bytes());
        runs.extend((WINDOW_US as f64).to_le_bytes());
        runs.extend(parameter.to_le_bytes());
        runs.extend(cost.to_le_bytes());
        runs.extend([8, usage, 0, 0, 0, 0]);
        runs.extend((TTL_US as f64).to_le_bytes());
        runs.extend(id.to_be_bytes());
        runs.extend(actual.to_le_bytes());
        let keys = ["count", "holds"].map(|key| format!("{key}:{}", self.algorithm));
        let reply: Vec<u8> =
            self.script.prepare_invoke().key(&keys[0]).key(&keys[1]).arg(runs).invoke(&mut self.connection).unwrap();
        let doubles: Vec<f64> =
            reply.chunks(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap_or([0xff; 8]))).collect();
        assert!(doubles[1] >= 0.0, "{}", String::from_utf8_lossy(&reply));
        let number = doubles[2] as u64;
        (number % 2 == 1, number / 4)
    }

    fn check(&mut self, cost: u32) -> bool {
        self.call(cost, CHECK, 0, 0).0
    }

    fn hold(&mut self, cost: u32, id: u64) -> bool {
        self.call(cost, CHECK, id, 0).0
    }

    fn settle(&mut self, id: u64, actual: u32) -> bool {
        self.call(0, SETTLE, id, actual).0
    }

    /// The units that a check of any size gets now.
    fn room(&mut self) -> u32 {
        (0..=LIMIT).rev().find(|&cost| self.call(cost, CHECK, u64::MAX, 0).0).map_or(0, |cost| {
            if cost > 0 {
                assert!(self.settle(u64::MAX, 0));
            }
            cost
        })
    }
}

#[test]
fn a_hold_that_ends_after_the_clock_was_set_back_or_forward_is_charged_once() {
    let server = RedisServer::start();
    for algorithm in 1..=4 {
        for step_us in [10 * SECOND_US as i64, -10 * SECOND_US as i64] {
            let (): () = redis::cmd("FLUSHDB").query(&mut server.connection()).unwrap();
            let mut server_clock = SteppedClock::new(&server, algorithm);
            server_clock.now_us += 20 * SECOND_US;
            assert!(server_clock.check(1) && server_clock.hold(5, 7));
            server_clock.now_us = server_clock.now_us.strict_add_signed(step_us);
            assert!(!server_clock.check(6), "{algorithm}, {step_us}");
            assert!(server_clock.check(2));
            // The hold ends, and later charges are as exact as before.
            server_clock.now_us += 41 * SECOND_US;
            if algorithm == 1 {
                assert_eq!(server_clock.room(), 2, "{step_us}");
            }
            assert!(!server_clock.settle(7, 1), "{algorithm}, {step_us}");
            assert_eq!(server_clock.call(0, CHECK, 0, 0), (true, 0));
            server_clock.now_us += 3 * WINDOW_US;
            assert_eq!(server_clock.room(), LIMIT, "{algorithm}, {step_us}");
        }
    }
}

#[test]
fn ending_holds_late_does_not_look_like_a_clock_that_was_set_back() {
    let server = RedisServer::start();
    for algorithm in 1..=4 {
        let mut server_clock = SteppedClock::new(&server, algorithm);
        assert!(server_clock.hold(1, 1));
        server_clock.now_us += SECOND_US;
        assert!(server_clock.hold(1, 2));
        // Only a policy without holds charges the count after the holds have ended.
        server_clock.now_us += 50 * SECOND_US;
        let plain = server_clock.now_us;
        let (): () = redis::cmd("RENAME")
            .arg(format!("holds:{algorithm}"))
            .arg("kept")
            .query(&mut server_clock.connection)
            .unwrap();
        assert!(server_clock.check(3));
        let (): () = redis::cmd("RENAME")
            .arg("kept")
            .arg(format!("holds:{algorithm}"))
            .query(&mut server_clock.connection)
            .unwrap();
        server_clock.now_us += SECOND_US;
        assert_eq!(server_clock.call(0, CHECK, 0, 0), (true, 0));
        // The count has no time of its own: what was charged leaves exactly a window after the charge.
        if algorithm == 1 {
            assert_eq!(server_clock.room(), 5);
            server_clock.now_us = plain + WINDOW_US - 1;
            assert_eq!(server_clock.room(), 5);
            server_clock.now_us += 1;
            assert_eq!(server_clock.room(), LIMIT);
        }
    }
}
