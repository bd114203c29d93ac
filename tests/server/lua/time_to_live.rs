//! The TTL of the exact log's keys: no longer than needed, and never shorter than the life of their records.
//!
//! A test cannot set the clock of a server. These tests patch the script to read the server's time from a key, and to
//! record the TTL in microseconds, without the slack for rounding, instead of setting it. The test then deletes the key
//! when its TTL is over.

use std::time::Duration;

use tollgate::redis::{self, Script};
use tollgate::{Limiter, Policy, RedisStore};

use super::call::{self, COMMIT, Caller, SCRIPT};
use crate::support::{redis_server::RedisServer, seed};

const START_US: u64 = 1_767_225_600_000_000;
const LIMIT: u64 = 4;

/// Replaces a part of the script that must occur exactly once.
fn patched(script: &str, part: &str, replacement: &str) -> String {
    assert_eq!(script.matches(part).count(), 1, "{part}");
    script.replace(part, replacement)
}

struct Log {
    caller: Caller,
    window_us: u64,
    resolution_us: u64,
    /// The server's time at which the key expires.
    expires_us: Option<u64>,
}

impl Log {
    /// `slack_us`: how far the clocks of clients may be behind.
    fn new(server: &RedisServer, window_us: u64, resolution_us: u64, slack_us: u64) -> Self {
        let script = patched(SCRIPT, "local time = call('TIME')", "local time = {0, call('GET', 'clock')}");
        let script = patched(
            &script,
            "local reply = redis.pcall('PEXPIRE', key, milliseconds)",
            "local reply = redis.call('SET', 'ttl', milliseconds) and 1",
        );
        let script = patched(
            &script,
            "math.max(0, math.ceil(time / 1000)) + slack",
            &format!("time + (slack == 1000 and 0 or {slack_us})"),
        );
        let caller = Caller { connection: server.connection(), script: Script::new(&script) };
        Self { caller, window_us, resolution_us, expires_us: None }
    }

    /// Charges `cost` by a client's clock or by the server's; returns the available units.
    fn check(&mut self, server_us: u64, client_us: Option<u64>, cost: u64) -> u64 {
        let connection = &mut self.caller.connection;
        let (): () = redis::cmd("SET").arg("clock").arg(server_us).query(connection).unwrap();
        let policy = call::Policy { parameter: self.resolution_us, ..call::Policy::log(LIMIT, self.window_us) };
        let report = self.caller.check("log", policy, COMMIT, cost, client_us);
        let ttl: Option<u64> = redis::cmd("GETDEL").arg("ttl").query(&mut self.caller.connection).unwrap();
        self.expires_us = ttl.map(|ttl| server_us + ttl).or(self.expires_us);
        report.1
    }

    /// Deletes the key if it has expired; returns the units that were available at that time.
    fn expire(&mut self, server_us: u64, client_us: Option<u64>) -> Option<u64> {
        self.expires_us.take_if(|expires_us| *expires_us <= server_us)?;
        let available = self.check(server_us, client_us, 0);
        let (): () = redis::cmd("UNLINK").arg("log").query(&mut self.caller.connection).unwrap();
        Some(available)
    }
}

/// A random number below `bound`.
fn below(random: &mut u64, bound: u64) -> u64 {
    // xorshift64.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random % bound
}

const WINDOWS_US: [u64; 9] = [1, 2, 3, 4, 5, 7, 11, 1_000, 60_000_000];

#[test]
fn law_1_a_key_of_the_log_never_expires_before_its_records_also_if_the_servers_clock_is_set_back() {
    let server = RedisServer::start();
    let (mut expirations, mut random) = (0, 1);
    for window_us in WINDOWS_US {
        for resolution_us in [1, (window_us / 3).max(1), window_us] {
            let mut log = Log::new(&server, window_us, resolution_us, 0);
            let mut now_us = START_US;
            for _ in 0..seed::in_this_run(800) {
                // Steps of about a quarter of a window, of a window, and of several.
                let step = [window_us / 4 + 2, window_us + 2, 3 * window_us][below(&mut random, 3) as usize];
                now_us += below(&mut random, step + 1);
                if let Some(available) = log.expire(now_us, None) {
                    assert_eq!(available, LIMIT, "window {window_us}, resolution {resolution_us}");
                    expirations += 1;
                }
                if below(&mut random, 5) == 0 {
                    now_us -= below(&mut random, 2 * window_us + 1);
                }
                log.check(now_us, None, 1);
            }
            let (): () = redis::cmd("UNLINK").arg("log").query(&mut log.caller.connection).unwrap();
        }
    }
    assert!(expirations > seed::in_this_run(666), "{expirations}");
}

#[test]
fn law_1_a_key_of_the_log_never_expires_before_its_records_by_the_clock_of_a_client_that_is_behind() {
    let server = RedisServer::start();
    let (mut expirations, mut random) = (0, 7);
    for window_us in WINDOWS_US {
        // Replaces the slack of one minute.
        let slack_us = window_us;
        let mut log = Log::new(&server, window_us, 1, slack_us);
        let mut now_us = START_US;
        for _ in 0..seed::in_this_run(800) {
            let step = [window_us / 4 + 2, window_us + 2, 6 * window_us][below(&mut random, 3) as usize];
            now_us += below(&mut random, step + 1);
            if let Some(available) = log.expire(now_us, Some(now_us - slack_us)) {
                assert_eq!(available, LIMIT, "window {window_us}");
                expirations += 1;
            }
            // About half of the checks have the correct time.
            let behind_us = below(&mut random, 2) * below(&mut random, slack_us + 1);
            log.check(now_us, Some(now_us - behind_us), 1);
        }
        let (): () = redis::cmd("UNLINK").arg("log").query(&mut log.caller.connection).unwrap();
    }
    assert!(expirations > seed::in_this_run(133), "{expirations}");
}

#[tokio::test]
async fn law_6_a_key_of_the_log_expires_a_quarter_of_a_window_after_its_last_record() {
    let server = RedisServer::start();
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let (limiter, mut connection) = (Limiter::new(store.clone()), server.connection());
    for (window_ms, resolution_ms) in [(1_000, 0), (60_000, 0), (60_000, 600), (86_400_000, 0)] {
        let policy = Policy::new("p", 1_000, Duration::from_millis(window_ms)).unwrap();
        let policy = match resolution_ms {
            0 => policy,
            resolution => policy.with_resolution(Duration::from_millis(resolution)),
        };
        for _ in 0..10 {
            let _ = limiter.check("k", &policy, 1).await.unwrap();
        }
        let ttl: u64 = redis::cmd("PTTL").arg(store.redis_key("k", &policy)).query(&mut connection).unwrap();
        let range = window_ms..=window_ms * 5 / 4 + resolution_ms + 1_001;
        assert!(range.contains(&ttl), "{ttl} ms for a window of {window_ms} ms");
    }
}
