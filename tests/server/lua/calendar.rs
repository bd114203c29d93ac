//! Calendar windows of the script: what it does with a window that is not the one of its key.

use tollgate::redis::{Connection, Script, cmd};

use super::call::{COMMIT, EVALUATE, REFUND, SCRIPT};
use crate::support::redis_server::RedisServer;

const START_US: u64 = 1_767_225_600_000_000;
const HOUR_US: u64 = 3_600_000_000;
const LIMIT: u64 = 10;

/// A server whose clock is in a key.
struct Clocked {
    connection: Connection,
    script: Script,
}

/// The verdict on a charge: whether it fits, what is spent, and the time until the window ends. Of a stale window, the
/// number of its charge and the time of its key.
#[derive(Debug, PartialEq)]
enum Answer {
    Judged(bool, u64, u64),
    Stale(u64, u64),
}

impl Clocked {
    fn new(server: &RedisServer) -> Self {
        let real = "local time = call('TIME')";
        assert!(SCRIPT.contains(real));
        let script = Script::new(&SCRIPT.replace(real, "local time = {0, call('GET', 'clock')}"));
        Self { connection: server.connection(), script }
    }

    /// One charge, at a time of the server, in the window from `start_us` on. `extra` is the time of a commit.
    fn call(&mut self, now_us: u64, usage: u8, cost: u64, start_us: u64, window_us: u64, extra: Option<u64>) -> Answer {
        let (): () = cmd("SET").arg("clock").arg(now_us).query(&mut self.connection).unwrap();
        let mut runs = vec![4 + 16 * u8::from(usage == REFUND), 1, 0, 1, 3, usage];
        let numbers = [LIMIT, window_us, start_us, cost].into_iter().chain(extra);
        runs.extend(numbers.flat_map(|number| (number as f64).to_le_bytes()));
        let reply: Vec<u8> = self.script.prepare_invoke().key("k").arg(runs).invoke(&mut self.connection).unwrap();
        let double = |at: usize| f64::from_le_bytes(reply[at..at + 8].try_into().unwrap());
        assert_eq!(double(0), now_us as f64);
        if double(8) >= 0.0 {
            return Answer::Judged(double(8) % 2.0 == 1.0, (double(8) / 4.0) as u64, double(16) as u64);
        }
        let text = &reply[24..];
        assert!(text.starts_with(b"STALEWINDOW") && text.len() as f64 == double(16), "{}", text.escape_ascii());
        Answer::Stale(double(35) as u64, double(43) as u64)
    }

    fn check(&mut self, now_us: u64, cost: u64, start_us: u64) -> Answer {
        self.call(now_us, COMMIT, cost, start_us, HOUR_US, None)
    }

    fn refund(&mut self, now_us: u64, cost: u64, start_us: u64, at_us: u64) {
        let answer = self.call(now_us, REFUND, cost, start_us, HOUR_US, Some(at_us));
        assert_eq!(answer, Answer::Judged(true, 0, 0));
    }

    fn value(&mut self) -> (Vec<u8>, i64) {
        let value = cmd("GET").arg("k").query::<Option<Vec<u8>>>(&mut self.connection).unwrap();
        (value.unwrap_or_default(), cmd("PTTL").arg("k").query(&mut self.connection).unwrap())
    }
}

#[test]
fn a_window_that_does_not_contain_the_time_is_refused_and_writes_nothing() {
    let server = RedisServer::start();
    let mut clocked = Clocked::new(&server);
    for (now_us, start_us) in [(START_US - 1, START_US), (START_US + HOUR_US, START_US), (START_US, 5 * START_US)] {
        for cost in [0, 1, LIMIT + 1] {
            assert_eq!(clocked.check(now_us, cost, start_us), Answer::Stale(1, now_us));
        }
        assert_eq!(clocked.value(), (vec![], -2));
    }
    assert_eq!(clocked.check(START_US + HOUR_US - 1, 4, START_US), Answer::Judged(true, 4, 1));
    assert_eq!(clocked.check(START_US + HOUR_US - 1, 7, START_US), Answer::Judged(false, 4, 1));
    let kept = clocked.value();
    assert_eq!(clocked.check(START_US + HOUR_US, 1, START_US), Answer::Stale(1, START_US + HOUR_US));
    assert_eq!(clocked.value().0, kept.0);
    let next = START_US + HOUR_US;
    assert_eq!(clocked.check(next, LIMIT, next), Answer::Judged(true, LIMIT, HOUR_US));
    assert!((3_601_000 - 60_000..=3_601_000).contains(&clocked.value().1), "kept until a second after its window");
}

#[test]
fn law_1_clients_with_other_rules_of_a_zone_share_the_window_that_the_first_of_them_has_begun() {
    let server = RedisServer::start();
    let mut clocked = Clocked::new(&server);
    // One client lets windows begin half an hour later than the other.
    let [one, other] = [START_US, START_US + HOUR_US / 2];
    let now_us = other + 10;
    assert_eq!(clocked.check(now_us, 6, one), Answer::Judged(true, 6, HOUR_US / 2 - 10));
    assert_eq!(clocked.check(now_us, 4, other), Answer::Judged(true, 10, HOUR_US / 2 - 10));
    assert_eq!(clocked.check(now_us, 1, one), Answer::Judged(false, 10, HOUR_US / 2 - 10));
    assert_eq!(clocked.check(one + HOUR_US - 1, 1, other), Answer::Judged(false, 10, 1));
    assert_eq!(clocked.check(one + HOUR_US, 6, other), Answer::Judged(true, 6, HOUR_US / 2));
    assert_eq!(clocked.check(one + HOUR_US, 5, one + HOUR_US), Answer::Judged(false, 6, HOUR_US / 2));
}

#[test]
fn a_refund_takes_a_commit_off_its_own_window_and_no_other() {
    let server = RedisServer::start();
    let mut clocked = Clocked::new(&server);
    let next = START_US + HOUR_US;
    clocked.check(START_US + 5, 4, START_US);
    clocked.refund(START_US + 9, 3, START_US, START_US + 5);
    assert_eq!(clocked.check(START_US + 9, 0, START_US), Answer::Judged(true, 1, HOUR_US - 9));
    clocked.check(next - 1, 2, START_US);
    // The window has passed, also before another one has begun.
    clocked.refund(next, 2, START_US, next - 1);
    clocked.check(next, 5, next);
    clocked.refund(next + 1, 2, START_US, next - 1);
    assert_eq!(clocked.check(next + 1, 0, next), Answer::Judged(true, 5, HOUR_US - 1));
    clocked.refund(next + 1, 5, next, next);
    assert_eq!(clocked.check(next + 1, 0, next), Answer::Judged(true, 0, HOUR_US - 1));
}

#[test]
fn a_clock_that_is_set_back_over_a_boundary_brings_no_window_back_and_freezes_none() {
    let server = RedisServer::start();
    let mut clocked = Clocked::new(&server);
    let next = START_US + HOUR_US;
    assert_eq!(clocked.check(next - 1, LIMIT, START_US), Answer::Judged(true, LIMIT, 1));
    assert_eq!(clocked.check(next + 5, 4, next), Answer::Judged(true, 4, HOUR_US - 5));
    // The window of the server's time is that of before. The key stays in the later one, whose time goes on.
    assert_eq!(clocked.check(next - 100, 6, START_US), Answer::Judged(true, LIMIT, HOUR_US - 5));
    assert_eq!(clocked.check(next - 50, 1, START_US), Answer::Judged(false, LIMIT, HOUR_US - 55));
    // By the time of the key, 105 us ahead of the server's, its window has ended. The client is told that time.
    let ended = next + HOUR_US - 105;
    assert_eq!(clocked.check(ended, 1, next), Answer::Stale(1, next + HOUR_US));
    assert_eq!(clocked.check(ended, 1, next + HOUR_US), Answer::Judged(true, 1, HOUR_US));
    let evaluated = clocked.call(ended, EVALUATE, 1, next + HOUR_US, HOUR_US, None);
    assert_eq!(evaluated, Answer::Judged(true, 1, HOUR_US));
}
