//! The server's clock is set back: nothing is admitted twice, and nobody waits for the clock to catch up.
//!
//! A server's clock cannot be moved from a test, so the script that is run here takes its time from a key instead of
//! from TIME, and is otherwise the same.

use tollgate::redis::{self, Connection, Script};

use super::protocol;
use crate::support::redis_server::RedisServer;

const START_US: u64 = 1_767_225_600_000_000;
const WINDOW_US: u64 = 60_000_000;
const LIMIT: u32 = 10;
const ALGORITHMS: std::ops::RangeInclusive<u8> = 1..=4;
/// As the script numbers them.
const LOG: u8 = 1;
const BUCKET: u8 = 4;

/// A server whose clock the test moves: the real time, less what it has been set back by.
struct Stepped {
    connection: Connection,
    script: Script,
    real_us: u64,
    behind_us: u64,
}

impl Stepped {
    fn new(server: &RedisServer) -> Self {
        let real = "local time = call('TIME')";
        assert!(protocol::SCRIPT.contains(real));
        let script = Script::new(&protocol::SCRIPT.replace(real, "local time = {0, call('GET', 'clock')}"));
        Self { connection: server.connection(), script, real_us: START_US, behind_us: 0 }
    }

    /// Whether one unit is allowed, and otherwise when to come again.
    fn check(&mut self, algorithm: u8) -> Result<(), u64> {
        let now_us = self.real_us - self.behind_us;
        let (): () = redis::cmd("SET").arg("clock").arg(now_us).query(&mut self.connection).unwrap();
        let mut policy = vec![algorithm, 0];
        policy.extend(LIMIT.to_le_bytes());
        policy.extend((WINDOW_US as f64).to_le_bytes());
        policy.extend(if algorithm == BUCKET { f64::from(LIMIT) } else { 1.0 }.to_le_bytes());
        let charge = [1_u8, 0, 0, 1, 0, 0, 0];
        let mut call = self.script.prepare_invoke();
        call.key(format!("k:{algorithm}")).arg("").arg(policy).arg(&charge[..]);
        let reply: Vec<u8> = call.invoke(&mut self.connection).unwrap();
        assert_ne!(reply[8], 2, "{}", String::from_utf8_lossy(&reply));
        let retry_after = f64::from_le_bytes(reply[13..21].try_into().unwrap());
        if reply[8] == 1 { Ok(()) } else { Err(retry_after as u64) }
    }
}

#[test]
fn nobody_waits_for_a_clock_that_was_set_back() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        let mut stepped = Stepped::new(&server);
        while stepped.check(algorithm).is_ok() {}
        let wait = stepped.check(algorithm).unwrap_err();
        for _ in 0..3 {
            stepped.behind_us += 10_000_000;
            assert_eq!(stepped.check(algorithm), Err(wait), "algorithm {algorithm}");
        }
        stepped.real_us += wait - 1;
        assert_eq!(stepped.check(algorithm), Err(1), "algorithm {algorithm}");
        stepped.real_us += 1;
        assert_eq!(stepped.check(algorithm), Ok(()), "algorithm {algorithm}");
    }
}

#[test]
fn law_1_holds_in_real_time_while_the_servers_clock_is_set_back_again_and_again() {
    let server = RedisServer::start();
    let mut stepped = Stepped::new(&server);
    let (mut admitted, mut random) = (Vec::new(), 1_u64);
    for _ in 0..5_000 {
        // An xorshift generator.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        stepped.real_us += random % 4_000_000;
        if random % 7 == 0 {
            stepped.behind_us += random % 20_000_000;
        }
        if stepped.check(LOG).is_ok() {
            admitted.push(stepped.real_us);
        }
        let in_window = admitted.iter().rev().take_while(|&&at| at + WINDOW_US > stepped.real_us).count();
        assert!(in_window <= LIMIT as usize, "{in_window} in a window");
    }
    assert!(admitted.len() > 1_000, "{}", admitted.len());
}
