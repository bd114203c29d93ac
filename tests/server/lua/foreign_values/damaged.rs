//! Counts, bans and holds that were cut or changed, and values of a great length: what a check of them says and costs.

use tollgate::redis::{self, Connection};

use super::plan::{Change, Charge, Outcome, Plan, SHADOW};
use super::{doubles, failure};
use crate::lua::call::{
    BAN_BY_HAND, COMMIT, COUNT_REJECTED, EVALUATE, FIXED_WINDOW, Policy, REFUND, SCRIPT, SLIDING_WINDOW_COUNTER,
    SLIDING_WINDOW_LOG, TOKEN_BUCKET, UNBAN,
};
use crate::redis::address::MINIMAL_ACL;
use crate::support::redis_server::{RedisServer, calls};

const NOW_US: u64 = 1_767_225_600_000_000;
const HOUR_US: u64 = 3_600_000_000;
const RECORD: u8 = 32;
const CREDIT: u8 = 33;
const FORGET_DENIALS: u8 = 36;

fn policy(algorithm: u8) -> Policy {
    Policy { algorithm, limit: 10, window_us: HOUR_US, parameter: if algorithm == SLIDING_WINDOW_LOG { 1 } else { 10 } }
}

/// Sends equal checks. The keys are those of all of them.
fn call(connection: &mut Connection, plan: &Plan, keys: &[&str], now_us: u64) -> Vec<Outcome> {
    let checks = keys.len() / plan.keys();
    let mut call = redis::cmd("EVAL");
    call.arg(SCRIPT).arg(keys.len()).arg(keys).arg(plan.packed(&[checks])).arg(now_us.to_string());
    plan.read(&call.query::<Vec<u8>>(connection).unwrap(), checks)
}

fn value(connection: &mut Connection, key: &str) -> Vec<u8> {
    redis::cmd("GET").arg(key).query::<Option<Vec<u8>>>(connection).unwrap().unwrap_or_default()
}

fn set(connection: &mut Connection, key: &str, value: &[u8]) {
    let (): () = redis::cmd("SET").arg(key).arg(value).query(connection).unwrap();
}

/// The value of a key with a count, and a ban that lasts for an hour.
fn banned(connection: &mut Connection, algorithm: u8) -> Vec<u8> {
    let (): () = redis::cmd("DEL").arg("banned").query(connection).unwrap();
    for step in 0..10 {
        call(connection, &Plan::new(vec![Charge::of(policy(algorithm), COMMIT, 1)]), &["banned"], NOW_US + step);
    }
    let ban = Plan { ban_us: HOUR_US, ..Plan::new(vec![Charge::of(policy(algorithm), BAN_BY_HAND, 0)]) };
    call(connection, &ban, &["banned"], NOW_US + 10);
    value(connection, "banned")
}

#[test]
fn a_damaged_ban_fails_its_own_check_and_each_change_by_hand_and_stays_as_it_is() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let bans = [SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, TOKEN_BUCKET]
        .map(|algorithm| (algorithm, banned(&mut connection, algorithm)));
    let mut damaged = Vec::new();
    for (algorithm, ban) in &bans {
        damaged.push((*algorithm, "is cut", ban[..ban.len().min(184) - 8].to_vec()));
        damaged.push((*algorithm, "has one byte more", [&ban[..ban.len().min(80)], b"x"].concat()));
        // The ban has ended, and its count is needed for ever.
        let ended = [&ban[..8], &doubles(&[NOW_US as f64, f64::INFINITY]), &ban[24..]].concat();
        damaged.push((*algorithm, "never ends", ended));
        for (_, of_other) in &bans {
            if ban.len() != of_other.len() {
                damaged.push((*algorithm, "is of another count", of_other.clone()));
            }
        }
        // What is left of the count is no number.
        let at = if *algorithm == SLIDING_WINDOW_LOG { 32 } else { 40 };
        let not_a_number = [&ban[..at], &doubles(&[f64::NAN]), &ban[at + 8..]].concat();
        damaged.push((*algorithm, "has no number", not_a_number));
        if *algorithm != SLIDING_WINDOW_LOG {
            let at = match *algorithm {
                FIXED_WINDOW => 48,
                TOKEN_BUCKET => 60,
                _ => 56,
            };
            let no_time = [&ban[..at], &doubles(&[f64::NAN]), &ban[at + 8..]].concat();
            damaged.push((*algorithm, "has no time of the last charge", no_time));
        }
    }
    for (algorithm, what, value) in damaged {
        for usage in [COMMIT, COUNT_REJECTED, EVALUATE, REFUND, RECORD, CREDIT, BAN_BY_HAND, UNBAN, FORGET_DENIALS] {
            let text = failure(&mut connection, policy(algorithm), usage, &value, &(NOW_US + 1_000).to_string());
            // A bucket takes any fraction of its parts.
            let may_pass = algorithm == TOKEN_BUCKET && what == "has no number";
            let is_right = text.as_ref().map_or(may_pass, |text| text.starts_with("NOTACOUNT"));
            assert!(is_right, "{algorithm}, usage {usage}: a ban that {what}: {text:?}");
        }
    }
}

#[test]
fn a_settlement_beside_holds_that_never_end_charges_nothing() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let charge = |change, cost| {
        Plan::new(vec![Charge {
            holds: Some((change, false)),
            ..Charge::of(Policy { parameter: 1_000, limit: 1_000, ..policy(TOKEN_BUCKET) }, COMMIT, cost)
        }])
    };
    for id in [*b"holdhold", *b"other-id"] {
        call(&mut connection, &charge(Change::Check(id), 5), &["count", "holds"], NOW_US);
    }
    call(&mut connection, &charge(Change::Check([0; 8]), 1), &["count", "holds"], NOW_US);
    let head: Vec<(Vec<u8>, f64)> =
        redis::cmd("ZRANGE").arg("holds").arg(0).arg(0).arg("WITHSCORES").query(&mut connection).unwrap();
    let (name, score) = &head[0];
    let never = [&name[..17], &doubles(&[f64::INFINITY])].concat();
    let (): () = redis::cmd("ZREM").arg("holds").arg(name).query(&mut connection).unwrap();
    let (): () = redis::cmd("ZADD").arg("holds").arg(*score).arg(never).query(&mut connection).unwrap();
    let before = value(&mut connection, "count");
    let settled = call(&mut connection, &charge(Change::Settle(*b"holdhold", 500), 0), &["count", "holds"], NOW_US + 1);
    assert!(matches!(&settled[0], Outcome::Failed(text) if text.starts_with("NOTACOUNT")), "{settled:?}");
    assert!(value(&mut connection, "count") == before && !before.is_empty(), "nothing is charged");
}

#[test]
fn law_3_a_check_that_fails_beside_a_cut_log_charges_nothing() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let log = policy(SLIDING_WINDOW_LOG);
    for step in 0..10 {
        call(&mut connection, &Plan::new(vec![Charge::of(log, COMMIT, 1)]), &["log"], NOW_US + 1_000 * step);
    }
    let whole = value(&mut connection, "log");
    let one = |algorithm, usage, second: Charge| Plan::new(vec![Charge::of(policy(algorithm), usage, 1), second]);
    let mut failures = 0;
    for length in [112, 183, 184, 186, 198, 220, 285] {
        set(&mut connection, "log", &whole[..length]);
        for plan in [
            one(TOKEN_BUCKET, COMMIT, Charge::of(log, SHADOW, 2)),
            one(FIXED_WINDOW, COUNT_REJECTED, Charge::of(log, COMMIT, 2)),
            one(SLIDING_WINDOW_COUNTER, RECORD, Charge::of(log, RECORD, 2)),
            one(FIXED_WINDOW, BAN_BY_HAND, Charge::of(log, FORGET_DENIALS, 0)),
        ] {
            let (): () = redis::cmd("DEL").arg("other").query(&mut connection).unwrap();
            for attempt in 0..3 {
                let before = value(&mut connection, "other");
                let outcome = call(&mut connection, &plan, &["other", "log"], NOW_US + 20_000).remove(0);
                if let Outcome::Failed(text) = outcome {
                    assert!(text.starts_with("NOTACOUNT"), "{length}: {text}");
                    assert!(value(&mut connection, "other") == before, "{length}, attempt {attempt}: {plan:?}");
                    failures += 1;
                }
            }
            set(&mut connection, "log", &whole[..length]);
        }
    }
    assert!(failures > 0);
    // A denial alone says no time after which the log is surely free, and none that is out of range.
    set(&mut connection, "log", &whole[..186]);
    let denied = call(&mut connection, &Plan::new(vec![Charge::of(log, EVALUATE, 5)]), &["log"], NOW_US + 20_000);
    match &denied[0] {
        Outcome::Decided(numbers) => assert!(numbers[1..].iter().all(|&time| time <= HOUR_US), "{numbers:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_value_of_ten_megabytes_is_not_read() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("SETRANGE").arg("long").arg(10 << 20).arg("x").query(&mut connection).unwrap();
    for algorithm in [SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, TOKEN_BUCKET] {
        for usage in [COMMIT, REFUND, RECORD, CREDIT, BAN_BY_HAND, UNBAN] {
            let plan = Plan::new(vec![Charge::of(policy(algorithm), usage, 1)]);
            let outcomes = call(&mut connection, &plan, &["long"; 8], NOW_US);
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Failed(_))), "{outcomes:?}");
            // What a script has read stays in the memory of Lua for a while.
            let info = server.command("INFO memory");
            let bytes = info.lines().find_map(|line| line.strip_prefix("used_memory_lua:")).unwrap();
            assert!(bytes.parse::<u64>().unwrap() < 5 << 20, "{algorithm}, usage {usage}: {bytes} bytes");
        }
    }
}

#[test]
fn a_call_reads_a_long_name_among_holds_once() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (): () = redis::cmd("ZADD").arg("holds").arg(-1).arg("x".repeat(4 << 20)).query(&mut connection).unwrap();
    let held = Charge { holds: Some((Change::Check([0; 8]), false)), ..Charge::of(policy(TOKEN_BUCKET), COMMIT, 1) };
    let outcomes = call(&mut connection, &Plan::new(vec![held]), &["count", "holds"].repeat(16), NOW_US);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Failed(_))), "{outcomes:?}");
    assert_eq!(calls(&server, "zrange"), 1);
}

/// A log whose ring of `size` blocks is full, of `length` bytes.
fn full_ring(size: usize, length: usize) -> Vec<u8> {
    // The next block is the last one of a ring of twice the size.
    let block = 2 * size - 1 + 2 * size * 3;
    let (head, count) = ((block - size) * 8, block * 8 + 8);
    let (live_at, newest) = ((NOW_US - 30_000_000) as f64, (NOW_US - 1_000) as f64);
    let fields = [
        &size.to_le_bytes()[..3],
        &[0; 10],
        &head.to_le_bytes()[..5],
        &1_u64.to_le_bytes()[..6],
        &10_u64.to_le_bytes()[..6],
        &0_u64.to_le_bytes()[..6],
        &live_at.to_le_bytes(),
        &newest.to_le_bytes(),
        &2_u64.to_le_bytes()[..6],
        &count.to_le_bytes()[..5],
        &[b'-'; 77],
    ]
    .concat();
    let mut value = vec![0; length];
    value[44..44 + fields.len()].copy_from_slice(&fields);
    value
}

#[test]
fn a_charge_makes_no_log_longer_than_twice_its_length_or_361_kilobytes() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    // The smallest set of permissions suffices for the largest log.
    server.command(&format!("ACL SETUSER gate on >secret {MINIMAL_ACL}"));
    let mut gate = server.connection();
    let (): () = redis::cmd("AUTH").arg("gate").arg("secret").query(&mut gate).unwrap();
    for (size, is_sound) in [(8, false), (2_048, false), (4_096, false), (4_096, true), (8_192, false), (8_192, true)] {
        let before = if is_sound { 198 + size * 88 } else { 198 + size * 44 };
        set(&mut connection, "tollgate:log", &full_ring(size, before));
        let log = Policy { window_us: 60_000_000, ..policy(SLIDING_WINDOW_LOG) };
        let other = Policy { algorithm: FIXED_WINDOW, ..log };
        let charges = vec![Charge::of(other, COMMIT, 1), Charge::of(log, COMMIT, 1)];
        let outcome = call(&mut gate, &Plan::new(charges), &["tollgate:other", "tollgate:log"], NOW_US).remove(0);
        let after = value(&mut connection, "tollgate:log").len();
        assert!(after <= 2 * before || after <= 361_000, "{size}: from {before} to {after}");
        if is_sound || matches!(outcome, Outcome::Decided(_)) {
            assert!(matches!(outcome, Outcome::Decided(_)), "{size}: {outcome:?}");
            assert_eq!(after, 198 + 2 * size * 88, "{size}");
        }
    }
}
