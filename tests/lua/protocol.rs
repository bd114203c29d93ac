//! The script's protocol: many checks in one call, several charges per check.

use redis::Value;
use tollgate::redis;

use crate::support::redis_server::RedisServer;

const SCRIPT: &str = concat!(
    include_str!("../../lua/prelude.lua"),
    include_str!("../../lua/sliding_window_log.lua"),
    include_str!("../../lua/sliding_window_counter.lua"),
    include_str!("../../lua/fixed_window.lua"),
    include_str!("../../lua/token_bucket.lua"),
    include_str!("../../lua/check.lua"),
);

/// Charges of these costs on a log of 5 a second: the first of each inner list begins a check.
fn eval(connection: &mut redis::Connection, now: &str, keys: &[&str], checks: &[&[u32]]) -> Vec<Value> {
    let mut policy = vec![1, 0, 5, 0, 0, 0];
    policy.extend(1e6_f64.to_le_bytes());
    policy.extend(1_f64.to_le_bytes());
    let mut charges = Vec::new();
    for check in checks {
        for (index, cost) in check.iter().enumerate() {
            charges.extend([u8::from(index == 0), 0, 0]);
            charges.extend(cost.to_le_bytes());
        }
    }
    let mut command = redis::cmd("EVAL");
    command.arg(SCRIPT).arg(keys.len()).arg(keys).arg(now).arg(policy).arg(charges);
    command.query(connection).unwrap()
}

fn integers(reply: &[Value]) -> Vec<i64> {
    reply.iter().map(|value| redis::from_redis_value(value.clone()).unwrap()).collect()
}

#[test]
fn many_checks_in_one_call_are_judged_in_order_each_whole_or_not_at_all() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let now = 1_767_225_600_000_000_i64;
    // a: 4 of 5; then a and b together: b fits, a does not; then a: 1 of 5; then b: untouched.
    let checks: [&[u32]; 4] = [&[4], &[2, 2], &[1], &[1]];
    let reply = integers(&eval(&mut connection, &now.to_string(), &["a", "a", "b", "a", "b"], &checks));
    let wait = 1_000_000;
    let expected = [
        vec![now],
        vec![1, 1, 1, -1, wait, wait],
        vec![0, 0, 1, wait, wait, wait, 1, 5, -1, 0, 0],
        vec![1, 1, 0, -1, wait, wait],
        vec![1, 1, 4, -1, wait, wait],
    ];
    assert_eq!(reply, expected.concat());
}

#[test]
fn a_bad_key_fails_its_check_alone() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("SADD").arg("bad").arg("x").query(&mut connection).unwrap();
    let reply = eval(&mut connection, "", &["a", "b", "bad", "c"], &[&[1], &[1, 1], &[1]]);
    let Value::BulkString(message) = &reply[7] else { panic!("{reply:?}") };
    assert!(String::from_utf8_lossy(message).contains("WRONGTYPE"));
    assert_eq!(integers(&reply[1..3]), [1, 1]);
    assert_eq!(integers(&reply[8..10]), [1, 1]);
    assert_eq!(reply.len(), 14);
    // The check that failed charged nothing, though its other key was good.
    let exists: bool = redis::cmd("EXISTS").arg("b").query(&mut connection).unwrap();
    assert!(!exists);
}

#[test]
fn the_servers_time_is_taken_once_for_all_checks_and_comes_back() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("CONFIG").arg("RESETSTAT").query(&mut connection).unwrap();
    let reply = integers(&eval(&mut connection, "", &["a", "b", "c"], &[&[1], &[1], &[1]]));
    let time: (i64, i64) = redis::cmd("TIME").query(&mut connection).unwrap();
    let age = time.0 * 1_000_000 + time.1 - reply[0];
    assert!((0..60_000_000).contains(&age), "{age}");
    assert!(server.command("INFO commandstats").contains("cmdstat_time:calls=2,"));
}
