//! The protocol of the script: many checks in one call, several charges per check.

use std::time::Duration;

use tollgate::redis::{self, Connection};

use super::call::{COMMIT, Policy, SCRIPT, SLIDING_WINDOW_COUNTER, checks};
use super::report::{Numbers, Report};
use crate::support::redis_server::RedisServer;

/// Sends checks with these costs to a log of 5 units per second. Returns the time, the reports of the charges, and the
/// texts of errors.
fn eval(
    connection: &mut Connection,
    now: &str,
    keys: &[&str],
    runs: &[(u16, &[u64])],
) -> (f64, Vec<Option<Report>>, String) {
    let policy = Policy::log(5, 1_000_000);
    let mut command = redis::cmd("EVAL");
    command.arg(SCRIPT).arg(keys.len()).arg(keys).arg(checks(policy, COMMIT, runs)).arg(now);
    let reply: Vec<u8> = command.query(connection).unwrap();
    let (mut numbers, errors) = Numbers::read_with_errors(&reply, keys.len());
    let costs = runs.iter().flat_map(|&(number, costs)| std::iter::repeat_n(costs, number.into()).flatten());
    let reports = costs.map(|&cost| numbers.next_report(policy, cost)).collect();
    assert!(numbers.is_read(), "the reply has more numbers");
    (numbers.time, reports, errors)
}

#[test]
fn checks_of_one_call_are_decided_in_order_and_each_is_atomic() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let now = 1_767_225_600_000_000_i64;
    // a: 4 of 5; then a and b together: b fits, a does not; then a: 1 of 5; then b: untouched.
    let runs: [(u16, &[u64]); 3] = [(1, &[4]), (1, &[2, 2]), (2, &[1])];
    let (time, reports, _) = eval(&mut connection, &now.to_string(), &["a", "a", "b", "a", "b"], &runs);
    let wait = 1e6;
    assert_eq!(time, now as f64);
    let expected = [
        (1, 1, -1.0, wait, wait),
        (0, 1, wait, wait, wait),
        (1, 5, -1.0, 0.0, 0.0),
        (1, 0, -1.0, wait, wait),
        (1, 4, -1.0, wait, wait),
    ];
    assert_eq!(reports, expected.map(Some));
}

#[test]
fn a_run_of_checks_with_several_charges_decides_each_check() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (_, reports, _) = eval(&mut connection, "", &["a", "b", "a", "c", "a", "d"], &[(3, &[2, 1])]);
    let fits: Vec<_> = reports.iter().map(|report| report.unwrap().0).collect();
    assert_eq!(fits, [1, 1, 1, 1, 0, 1]);
    let exists: bool = redis::cmd("EXISTS").arg("d").query(&mut connection).unwrap();
    assert!(!exists, "the third check has charged one of its keys");
}

#[test]
fn a_bad_key_fails_only_its_own_check() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("SADD").arg("bad").arg("x").query(&mut connection).unwrap();
    // Single charges, and runs of checks with several charges, of which the first or the last is bad.
    let keys = ["a", "bad", "b", "c", "bad", "d", "e", "bad", "f", "bad", "g"];
    let runs: [(u16, &[u64]); 3] = [(3, &[1]), (3, &[1, 1]), (2, &[1])];
    let (_, reports, errors) = eval(&mut connection, "", &keys, &runs);
    let decided: Vec<_> = reports.iter().map(|report| report.map(|report| report.0)).collect();
    let failed = None;
    assert_eq!(decided[..3], [Some(1), failed, Some(1)]);
    assert_eq!(decided[3..9], [failed, failed, Some(1), Some(1), failed, failed]);
    assert_eq!(decided[9..], [failed, Some(1)]);
    assert_eq!(errors.matches("WRONGTYPE").count(), 4, "{errors}");
    // The failed checks charged nothing, also not their valid keys.
    let exists: u64 = redis::cmd("EXISTS").arg("c").arg("f").query(&mut connection).unwrap();
    assert_eq!(exists, 0);
}

#[test]
fn a_check_that_fails_while_it_commits_leaves_no_numbers_in_the_reply() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let now = 1_767_225_600_000_000_i64;
    eval(&mut connection, &now.to_string(), &["a", "b"], &[(2, &[1])]);
    // The third key is new, so it needs a TTL, which this user may not set.
    server.command("ACL SETUSER app on >secret ~* +eval +getrange +setrange +unlink");
    let (): () = redis::cmd("AUTH").arg("app").arg("secret").query(&mut connection).unwrap();
    let later = (now + 1_000).to_string();
    let (_, reports, errors) = eval(&mut connection, &later, &["a", "c", "a", "b"], &[(2, &[1, 1])]);
    let resets: Vec<_> = reports.iter().map(|report| report.map(|report| report.4)).collect();
    assert_eq!(resets, [None, None, Some(1e6), Some(1e6)]);
    assert!(errors.to_lowercase().contains("pexpire") || errors.contains("can't run this command"), "{errors}");
}

#[test]
fn a_value_with_wrong_numbers_does_not_keep_the_server_busy() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let now = 1_767_225_600_000_000_i64;
    for step in 0..5 {
        eval(&mut connection, &(now + step * 1_000).to_string(), &["k"], &[(1, &[1])]);
    }
    let mut value: Vec<u8> = redis::cmd("GET").arg("k").query(&mut connection).unwrap();
    // The number of the first record behind the copy, which holds no record.
    value[52..57].fill(0xff);
    let (): () = redis::cmd("SET").arg("k").arg(value).query(&mut connection).unwrap();
    let (_, reports, _) = eval(&mut connection, &(now + 5_000).to_string(), &["a", "k", "b"], &[(3, &[3])]);
    let fits: Vec<_> = reports.iter().map(|report| report.map(|report| report.0)).collect();
    assert_eq!(fits, [Some(1), Some(0), Some(1)]);

    // Text fails only its own check.
    let (): () = redis::cmd("SET").arg("k").arg("text ".repeat(40)).query(&mut connection).unwrap();
    let (_, reports, errors) = eval(&mut connection, &(now + 5_001).to_string(), &["c", "k", "d"], &[(3, &[3])]);
    let fits: Vec<_> = reports.iter().map(|report| report.map(|report| report.0)).collect();
    assert_eq!(fits, [Some(1), None, Some(1)]);
    assert!(errors.contains("NOTACOUNT"), "{errors}");

    // A counter whose previous window has an infinite count.
    let counter = Policy { algorithm: SLIDING_WINDOW_COUNTER, ..Policy::log(5, 1_000_000) };
    let value = [now as f64, f64::INFINITY, 0.0, 0.0, 0.0].map(f64::to_le_bytes).concat();
    let (): () = redis::cmd("SET").arg("counter").arg(value).query(&mut connection).unwrap();
    let mut command = redis::cmd("EVAL");
    command.arg(SCRIPT).arg(1).arg("counter").arg(checks(counter, COMMIT, &[(1, &[1])])).arg(now + 1);
    let reply: Vec<u8> = command.query(&mut connection).unwrap();
    let (mut numbers, errors) = Numbers::read_with_errors(&reply, 1);
    assert_eq!(numbers.next_report(counter, 1), None);
    assert!(errors.contains("NOTACOUNT"), "{errors}");
}

#[test]
fn a_short_text_is_not_taken_for_an_empty_log() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let keys: Vec<_> = (0..20).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    server.command("SET k7 text");
    // A long run reads less of each value than a short one. Cost 0 takes the path of unusual checks.
    for (count, cost) in [(20_u16, 1), (8, 1), (20, 0)] {
        let (_, reports, _) = eval(&mut connection, "1767225600000000", &keys[..count.into()], &[(count, &[cost])]);
        let failed: Vec<_> = (0..reports.len()).filter(|&number| reports[number].is_none()).collect();
        assert_eq!(failed, [7], "{count} checks of cost {cost}");
        assert_eq!(server.command("GET k7"), "$4\r\ntext\r\n");
    }
}

#[test]
fn the_servers_time_is_read_once_per_call_and_returned() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut connection).unwrap();
    let (now, ..) = eval(&mut connection, "", &["a", "b", "c"], &[(3, &[1])]);
    let time: (i64, i64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let age = (time.0 * 1_000_000 + time.1) as f64 - now;
    assert!((0.0..60e6).contains(&age), "{age}");
    assert!(server.command("INFO commandstats").contains("cmdstat_time:calls=2,"));
}
