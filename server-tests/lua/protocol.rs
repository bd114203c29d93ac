//! The protocol of the script: many checks in one call, several charges per check.

use tollgate::redis;

use crate::support::redis_server::RedisServer;

pub(crate) const SCRIPT: &str = concat!(
    include_str!("../../lua/prelude.lua"),
    include_str!("../../lua/sliding_window_log.lua"),
    include_str!("../../lua/sliding_window_counter.lua"),
    include_str!("../../lua/fixed_window.lua"),
    include_str!("../../lua/token_bucket.lua"),
    include_str!("../../lua/refund.lua"),
    include_str!("../../lua/check.lua"),
);

/// The report of a charge: fits, available, retry_after, next unit, reset.
pub(crate) type Report = (u8, u32, f64, f64, f64);

/// Sends checks with these costs to a log of 5 units per second. Returns the time and the packed reports.
fn eval(connection: &mut redis::Connection, now: &str, keys: &[&str], checks: &[&[u32]]) -> (f64, Vec<u8>) {
    let mut policy = vec![1, 0, 5, 0, 0, 0];
    policy.extend(1e6_f64.to_le_bytes());
    policy.extend(1_f64.to_le_bytes());
    let mut charges = Vec::new();
    for check in checks {
        for (index, cost) in check.iter().enumerate() {
            charges.extend([if index == 0 { u8::try_from(check.len()).unwrap() } else { 0 }, 0, 0]);
            charges.extend(cost.to_le_bytes());
        }
    }
    let mut command = redis::cmd("EVAL");
    command.arg(SCRIPT).arg(keys.len()).arg(keys).arg(now).arg(policy).arg(charges);
    let reply: Vec<u8> = command.query(connection).unwrap();
    let (time, packed) = reply.split_first_chunk().unwrap();
    (f64::from_le_bytes(*time), packed.to_vec())
}

pub(crate) fn reports(packed: &[u8]) -> Vec<Report> {
    let double = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    let report = |packed: &[u8]| {
        let available = u32::from_le_bytes(packed[1..5].try_into().unwrap());
        (packed[0], available, double(&packed[5..13]), double(&packed[13..21]), double(&packed[21..29]))
    };
    packed.chunks(29).map(report).collect()
}

#[test]
fn checks_of_one_call_are_decided_in_order_and_each_is_atomic() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let now = 1_767_225_600_000_000_i64;
    // a: 4 of 5; then a and b together: b fits, a does not; then a: 1 of 5; then b: untouched.
    let checks: [&[u32]; 4] = [&[4], &[2, 2], &[1], &[1]];
    let (time, packed) = eval(&mut connection, &now.to_string(), &["a", "a", "b", "a", "b"], &checks);
    let wait = 1e6;
    assert_eq!(time, now as f64);
    let expected =
        [(1, 1, -1.0, wait, wait), (0, 1, wait, wait, wait), (1, 5, -1.0, 0.0, 0.0), (1, 0, -1.0, wait, wait)];
    assert_eq!(reports(&packed)[..4], expected);
    assert_eq!(reports(&packed)[4..], [(1, 4, -1.0, wait, wait)]);
}

#[test]
fn a_bad_key_fails_only_its_own_check() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("SADD").arg("bad").arg("x").query(&mut connection).unwrap();
    let (_, packed) = eval(&mut connection, "", &["a", "b", "bad", "c"], &[&[1], &[1, 1], &[1]]);
    let (first, failed) = packed.split_at(29);
    assert_eq!(reports(first)[0].0, 1);
    assert_eq!(failed[0], 2);
    let (message, last) = failed[5..].split_at(failed[1].into());
    assert!(String::from_utf8_lossy(message).contains("WRONGTYPE"));
    assert_eq!(last.len(), 29);
    assert_eq!(reports(last)[0].0, 1);
    // The failed check charged nothing, also not its valid key.
    let exists: bool = redis::cmd("EXISTS").arg("b").query(&mut connection).unwrap();
    assert!(!exists);
}

#[test]
fn the_servers_time_is_read_once_per_call_and_returned() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut connection).unwrap();
    let (now, _) = eval(&mut connection, "", &["a", "b", "c"], &[&[1], &[1], &[1]]);
    let time: (i64, i64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let age = (time.0 * 1_000_000 + time.1) as f64 - now;
    assert!((0.0..60e6).contains(&age), "{age}");
    assert!(server.command("INFO commandstats").contains("cmdstat_time:calls=2,"));
}
