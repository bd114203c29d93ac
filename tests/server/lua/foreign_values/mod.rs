//! Values in Redis that the script has not written: of other programs, from a wrong restore, or damaged. Each fails at
//! most its own check, whatever it is, and no value keeps the server busy.

mod damaged;
mod fuzz;
mod plan;
mod random;
mod values;

use std::time::Duration;

use tollgate::redis::{self, Connection};

use self::fuzz::{Fuzz, wall_clock_us};
use self::plan::{Charge, Outcome, Plan};
use super::call::{COMMIT, COUNT_REJECTED, FIXED_WINDOW, Policy, SCRIPT, SLIDING_WINDOW_COUNTER, TOKEN_BUCKET};
use crate::support::{redis_server::RedisServer, seed};

/// Sends one check between two others. Returns its error, if it has failed.
fn failure(connection: &mut Connection, policy: Policy, usage: u8, value: &[u8], now: &str) -> Option<String> {
    let (): () = redis::cmd("SET").arg("foreign").arg(value).query(connection).unwrap();
    let plan = Plan::new(vec![Charge::of(policy, usage, 1)]);
    let mut call = redis::cmd("EVAL");
    let neighbour = |name: &str| format!("{name}:{}", policy.algorithm);
    call.arg(SCRIPT).arg(3).arg(neighbour("a")).arg("foreign").arg(neighbour("b")).arg(plan.packed(&[3])).arg(now);
    let outcomes = plan.read(&call.query::<Vec<u8>>(connection).unwrap(), 3);
    assert!([0, 2].iter().all(|&other| matches!(outcomes[other], Outcome::Decided(_))), "{outcomes:?}");
    match &outcomes[1] {
        Outcome::Decided(_) | Outcome::Banned(_) => None,
        Outcome::Failed(text) => {
            let left: Vec<u8> = redis::cmd("GET").arg("foreign").query(connection).unwrap();
            assert!(left == value, "nothing is charged");
            Some(text.clone())
        }
    }
}

/// A value of doubles.
fn doubles(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn an_infinite_count_that_starts_far_ahead_does_not_keep_the_server_busy() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let policy = Policy { algorithm: SLIDING_WINDOW_COUNTER, ..Policy::log(1_000_000, 60_000_000) };
    // Nothing is left of the window, and nothing times an infinite count is no number.
    let start = 60e6 * 2_f64.powi(60);
    for count in [[0.0, f64::INFINITY], [f64::INFINITY, 0.0], [f64::INFINITY; 2]] {
        let value = doubles(&[start, count[0], count[1], 0.0, 0.0]);
        for now in ["1767225600000000", ""] {
            let text = failure(&mut connection, policy, COMMIT, &value, now);
            assert!(text.is_some_and(|text| text.contains("NOTACOUNT")), "{count:?}");
        }
    }
    // A bucket whose fraction has no parts.
    let policy = Policy { algorithm: TOKEN_BUCKET, limit: 1 << 40, parameter: 1 << 40, window_us: 1 << 40 };
    let value = [doubles(&[2e15]), vec![0xff; 6], vec![0; 6], doubles(&[0.0; 3])].concat();
    let text = failure(&mut connection, policy, COMMIT, &value, "1767225600000000");
    assert!(text.is_some_and(|text| text.contains("NOTACOUNT")));
}

#[test]
fn a_charge_of_as_much_as_fits_ends_whatever_its_cost_is() {
    const UP_TO: u8 = 38;
    let server = RedisServer::start();
    let mut connection = server.connection();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let policy = Policy { algorithm: FIXED_WINDOW, ..Policy::log(1, 60_000_000) };
    for cost in [2.5, 0.5, -1.0, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        let used = [(1 << (FIXED_WINDOW - 1)) + 64];
        let record = [&[1, 0, 1][..], &policy.packed(UP_TO), &doubles(&[cost, 0.0])].concat();
        let mut call = redis::cmd("EVAL");
        call.arg(SCRIPT).arg(1).arg(format!("cost:{cost}")).arg([&used[..], &record].concat()).arg("1767225600000000");
        let _: Vec<u8> = call.query(&mut connection).unwrap();
    }
}

#[test]
fn a_count_out_of_range_is_refused_and_the_largest_one_is_not() {
    let server = RedisServer::start();
    let mut connection = server.connection();
    let (now, start) = ("1767225600000000", 1_767_225_600e6);
    let most = 2_f64.powi(50) - 1.0;
    for (count, is_valid) in [
        (0.0, true),
        (7.0, true),
        (most, true),
        (most + 1.0, false),
        (1e300, false),
        (-1.0, false),
        (0.5, false),
        (f64::INFINITY, false),
        (f64::NEG_INFINITY, false),
        (f64::NAN, false),
    ] {
        for (algorithm, value) in [
            (FIXED_WINDOW, doubles(&[start, count, start, 0.0])),
            (SLIDING_WINDOW_COUNTER, doubles(&[start, 0.0, count, start, 0.0])),
            (SLIDING_WINDOW_COUNTER, doubles(&[start - 60e6, 0.0, count, start, 0.0])),
            (SLIDING_WINDOW_COUNTER, doubles(&[start, count, 0.0, start, 0.0])),
        ] {
            let policy = Policy { algorithm, ..Policy::log(5, 60_000_000) };
            let text = failure(&mut connection, policy, COUNT_REJECTED, &value, now);
            assert_eq!(text.is_none(), is_valid, "{algorithm}: {count}");
            // A counted rejection leaves a count that is valid.
            if is_valid {
                let left: Vec<u8> = redis::cmd("GET").arg("foreign").query(&mut connection).unwrap();
                assert_eq!(failure(&mut connection, policy, COUNT_REJECTED, &left, now), None, "{algorithm}: {count}");
            }
        }
    }
}

#[test]
fn foreign_values_of_every_kind_fail_at_most_their_own_check() {
    let mut fuzz = Fuzz::new(1);
    while fuzz.rounds < u64::from(seed::in_this_run(3_000)) {
        fuzz.round();
    }
    println!("{} of {} failed, at most {} us", fuzz.failed, fuzz.foreign, fuzz.most_us);
}

#[test]
fn wrong_arguments_end_too() {
    let mut fuzz = Fuzz::new(2);
    while fuzz.rounds < u64::from(seed::in_this_run(3_000)) {
        fuzz.wrong_arguments();
    }
}

/// `TOLLGATE_FOREIGN_VALUES` sets another number of values.
#[test]
#[ignore = "a million values: tests/run --long"]
fn long_foreign_values_of_every_kind_fail_at_most_their_own_check() {
    let values: u64 = std::env::var("TOLLGATE_FOREIGN_VALUES").map_or(1_000_000, |text| text.parse().unwrap());
    let seed = wall_clock_us();
    println!("seed {seed}");
    let mut fuzz = Fuzz::new(seed);
    while fuzz.foreign < values {
        fuzz.round();
        if fuzz.rounds.is_multiple_of(10) {
            fuzz.wrong_arguments();
        }
    }
    println!("{} rounds: {} of {} failed, at most {} us", fuzz.rounds, fuzz.failed, fuzz.foreign, fuzz.most_us);
}
