//! The server's clock is set back: nothing is admitted twice, and no check waits for the clock to catch up.
//!
//! A test cannot set the clock of a server, so these tests patch the script to read the time from a key instead of
//! TIME.

use tollgate::redis::{self, Script};

use super::call::{COMMIT, Caller, Policy, SCRIPT, SLIDING_WINDOW_LOG, TOKEN_BUCKET};
use crate::support::redis_server::RedisServer;

const START_US: u64 = 1_767_225_600_000_000;
const WINDOW_US: u64 = 60_000_000;
const LIMIT: u64 = 10;
const ALGORITHMS: std::ops::RangeInclusive<u8> = 1..=4;

/// A server whose clock the test controls: the real time minus the sum of all backward steps.
struct SteppedClock {
    caller: Caller,
    real_us: u64,
    behind_us: u64,
}

impl SteppedClock {
    fn new(server: &RedisServer) -> Self {
        let real = "local time = call('TIME')";
        assert!(SCRIPT.contains(real));
        let script = Script::new(&SCRIPT.replace(real, "local time = {0, call('GET', 'clock')}"));
        let caller = Caller { connection: server.connection(), script };
        Self { caller, real_us: START_US, behind_us: 0 }
    }

    /// Charges one unit; the error is Retry-After in microseconds.
    fn check(&mut self, algorithm: u8) -> Result<(), u64> {
        let now_us = self.real_us - self.behind_us;
        let (): () = redis::cmd("SET").arg("clock").arg(now_us).query(&mut self.caller.connection).unwrap();
        let parameter = if algorithm == TOKEN_BUCKET { LIMIT } else { 1 };
        let policy = Policy { algorithm, limit: LIMIT, window_us: WINDOW_US, parameter };
        match self.caller.check(&format!("k:{algorithm}"), policy, COMMIT, 1, None) {
            (1, ..) => Ok(()),
            (_, _, retry_after, ..) => Err(retry_after as u64),
        }
    }
}

#[test]
fn no_check_waits_for_a_clock_that_was_set_back() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        let mut server_clock = SteppedClock::new(&server);
        while server_clock.check(algorithm).is_ok() {}
        let wait = server_clock.check(algorithm).unwrap_err();
        for _ in 0..3 {
            server_clock.behind_us += 10_000_000;
            assert_eq!(server_clock.check(algorithm), Err(wait), "algorithm {algorithm}");
        }
        server_clock.real_us += wait - 1;
        assert_eq!(server_clock.check(algorithm), Err(1), "algorithm {algorithm}");
        server_clock.real_us += 1;
        assert_eq!(server_clock.check(algorithm), Ok(()), "algorithm {algorithm}");
    }
}

#[test]
fn law_1_holds_in_real_time_while_the_servers_clock_is_set_back_repeatedly() {
    let server = RedisServer::start();
    let mut server_clock = SteppedClock::new(&server);
    let (mut admitted, mut random) = (Vec::new(), 1_u64);
    for _ in 0..5_000 {
        // xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        server_clock.real_us += random % 4_000_000;
        if random % 7 == 0 {
            server_clock.behind_us += random % 20_000_000;
        }
        if server_clock.check(SLIDING_WINDOW_LOG).is_ok() {
            admitted.push(server_clock.real_us);
        }
        let in_window = admitted.iter().rev().take_while(|&&at| at + WINDOW_US > server_clock.real_us).count();
        assert!(in_window <= LIMIT as usize, "{in_window} in a window");
    }
    assert!(admitted.len() > 1_000, "{}", admitted.len());
}
