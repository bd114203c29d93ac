//! Refunds leave no trace: after a refund, a count equals in every field the count that never had the charge.

use tollgate::redis::{self, Script};

use super::call::{
    BAN_BY_HAND, COMMIT, COUNT_REJECTED, Caller, EVALUATE, FIXED_WINDOW, Policy, REFUND, SCRIPT,
    SLIDING_WINDOW_COUNTER, SLIDING_WINDOW_LOG, TOKEN_BUCKET, UNBAN,
};
use super::report::{Numbers, Report};
use crate::support::{redis_server::RedisServer, seed};

const START_US: u64 = 1_767_225_600_000_000;

struct ScriptClient {
    caller: Caller,
    now_us: u64,
}

impl ScriptClient {
    fn new(server: &RedisServer) -> Self {
        let caller = Caller { connection: server.connection(), script: Script::new(SCRIPT) };
        Self { caller, now_us: START_US }
    }

    fn call(&mut self, key: &str, policy: Policy, usage: u8, cost: u64) -> Report {
        self.caller.check(key, policy, usage, cost, Some(self.now_us))
    }

    fn refund(&mut self, key: &str, policy: Policy, cost: u64, charged_us: u64) {
        self.caller.refund(key, policy, cost, charged_us, self.now_us);
    }

    fn evaluate(&mut self, key: &str, policy: Policy, cost: u64) -> Report {
        self.call(key, policy, EVALUATE, cost)
    }
}

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Charges two counts alike. One count also gets additional charges, which are refunded some steps later in random
/// order. Compares the counts whenever no charge is outstanding.
fn compare(client: &mut ScriptClient, policy: Policy, costs: u64, pace_us: u64, outstanding: usize) {
    let mut random = Random(policy.limit + pace_us + outstanding as u64);
    let (with_refunds, without_refunds) =
        (format!("with_refunds:{}:{pace_us}", policy.limit), format!("without_refunds:{}:{pace_us}", policy.limit));
    let (mut outstanding_charges, mut compared, mut refunded) = (Vec::new(), 0, 0);
    let mut is_charging = true;
    for step in 0..seed::in_this_run(8_000) {
        client.now_us += match random.below(400) {
            0 => policy.window_us / 2,
            1 => policy.window_us * 2,
            2..150 => 0,
            _ => random.below(pace_us),
        };
        let cost = random.below(costs) + 1;
        if client.evaluate(&with_refunds, policy, cost).0 == 1 {
            assert_eq!(client.call(&with_refunds, policy, COMMIT, cost).0, 1);
            if is_charging && random.below(3) > 0 {
                outstanding_charges.push((client.now_us, cost));
            } else {
                assert_eq!(
                    client.call(&without_refunds, policy, COMMIT, cost).0,
                    1,
                    "step {step}: more was refunded than charged"
                );
            }
        }
        if outstanding_charges.len() >= outstanding {
            is_charging = false;
        }
        if !is_charging && !outstanding_charges.is_empty() {
            let (charged_us, cost) = outstanding_charges
                .swap_remove(usize::try_from(random.below(outstanding_charges.len() as u64)).unwrap());
            client.refund(&with_refunds, policy, cost, charged_us);
            refunded += 1;
        }
        if outstanding_charges.is_empty() {
            is_charging = true;
            let (refunded, reference) =
                (client.evaluate(&with_refunds, policy, cost), client.evaluate(&without_refunds, policy, cost));
            if policy.algorithm == TOKEN_BUCKET {
                assert!(refunded.1 <= reference.1, "step {step}: {refunded:?} against {reference:?}");
            } else {
                assert_eq!(refunded, reference, "step {step}");
            }
            compared += 1;
        }
    }
    assert!(
        compared >= seed::in_this_run(8) && refunded > seed::in_this_run(200),
        "{compared} compared, {refunded} refunded"
    );
}

#[test]
fn a_log_after_refunds_equals_a_log_without_the_charges() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    let log = |limit, resolution| Policy {
        algorithm: SLIDING_WINDOW_LOG,
        limit,
        window_us: 10_000_000,
        parameter: resolution,
    };
    // Few and many records, at the limit and far below it, growing rings, and a coarse resolution.
    for (policy, costs, pace_us) in [
        (log(5, 1), 3, 2_000_000),
        (log(100, 1), 2, 200_000),
        (log(3_000, 1), 40, 100_000),
        (log(50_000, 1), 30, 1_000),
        (log(200_000, 1), 30, 10),
        (log(2_000, 50_000), 30, 20_000),
    ] {
        for outstanding in [1, 2, 7, 100] {
            compare(&mut client, policy, costs, pace_us + outstanding as u64, outstanding);
        }
    }
}

/// The Retry-After of a cost shows the stamp of the record that must expire for the cost to fit.
#[test]
fn every_record_of_a_log_is_found_after_its_ring_grew_and_shrank() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    for (left, kept) in [0, 5, 18].into_iter().flat_map(|left| (1..70).step_by(4).map(move |kept| (left, kept))) {
        let policy =
            Policy { algorithm: SLIDING_WINDOW_LOG, limit: left + kept + 30, window_us: 1_000_000, parameter: 1 };
        let (key, mut stamps) = (format!("k{left}:{kept}"), Vec::new());
        let commit = |client: &mut ScriptClient| {
            client.now_us += 1;
            assert_eq!(client.call(&key, policy, COMMIT, 1).0, 1);
            client.now_us
        };
        // These records expire before the refunds.
        for _ in 0..left {
            commit(&mut client);
        }
        client.now_us += policy.window_us / 2;
        stamps.extend((0..kept).map(|_| commit(&mut client)));
        client.now_us += policy.window_us / 2;
        for turns in [0, 7, 15, 29] {
            let mut outstanding_charges: Vec<_> = (0..30).map(|_| commit(&mut client)).collect();
            outstanding_charges.rotate_left(turns);
            for charged_us in outstanding_charges.into_iter().rev() {
                client.refund(&key, policy, 1, charged_us);
            }
        }
        stamps.extend((0..30 + left).map(|_| commit(&mut client)));
        for (cost, stamp) in (1..).zip(stamps) {
            let (_, _, retry_after, ..) = client.evaluate(&key, policy, cost);
            let leaves = (stamp + policy.window_us - client.now_us) as f64;
            assert_eq!(retry_after, leaves, "{left} left, {kept} kept, cost {cost}");
        }
    }
}

#[test]
fn other_counts_after_refunds_equal_counts_without_the_charges_and_a_bucket_never_has_more() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    for (algorithm, limit) in
        [(SLIDING_WINDOW_COUNTER, 100), (SLIDING_WINDOW_COUNTER, 7_000), (FIXED_WINDOW, 101), (FIXED_WINDOW, 7_001)]
    {
        let policy = Policy { algorithm, limit, window_us: 10_000_000, parameter: 0 };
        for outstanding in [1, 7, 40] {
            compare(&mut client, policy, 9, 300_000 + outstanding as u64, outstanding);
        }
    }
    for limit in [102, 7_002] {
        let policy = Policy { algorithm: TOKEN_BUCKET, limit, window_us: 10_000_000, parameter: limit / 2 };
        for outstanding in [1, 7, 40] {
            compare(&mut client, policy, 9, 30_000 + outstanding as u64, outstanding);
        }
    }
}

#[test]
fn a_bucket_is_refunded_all_but_the_refill_since_the_charge() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    // Seven units per ten seconds: the refill time of a unit is no whole number of microseconds.
    let policy = Policy { algorithm: TOKEN_BUCKET, limit: 7, window_us: 10_000_000, parameter: 7 };
    assert_eq!(client.call("k", policy, COMMIT, 3).1, 4);
    let before = client.evaluate("k", policy, 0);
    client.call("k", policy, COMMIT, 4);
    client.refund("k", policy, 4, START_US);
    assert_eq!(client.evaluate("k", policy, 0), before);
    // A refund one second later omits the refill of that second, which a full bucket would have discarded.
    client.call("k", policy, COMMIT, 2);
    client.now_us += 1_000_000;
    client.call("k", policy, COMMIT, 1);
    client.refund("k", policy, 2, START_US);
    let (_, _, _, _, reset) = client.evaluate("k", policy, 0);
    // Four units are spent in total, less one second of refill, plus one second that the refund omits.
    assert_eq!(reset, 4.0 * 10e6 / 7.0 - (4.0 * 10e6 / 7.0) % 1.0 + 1.0);
    // A charge that is refilled completely refunds nothing.
    client.now_us += 1_000_000;
    client.call("k", policy, COMMIT, 1);
    let spent = client.evaluate("k", policy, 0);
    client.refund("k", policy, 1, START_US);
    assert_eq!(client.evaluate("k", policy, 0), spent);
}

#[test]
fn a_charge_that_is_not_found_is_not_refunded() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    for algorithm in [SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW] {
        let policy = Policy { algorithm, limit: 10, window_us: 10_000_000, parameter: 1 };
        let key = format!("k{algorithm}");
        client.refund(&key, policy, 1, START_US);
        assert_eq!(client.evaluate(&key, policy, 0).1, 10);
        client.call(&key, policy, COMMIT, 4);
        // A higher cost than charged, and another time.
        client.refund(&key, policy, 5, START_US);
        client.refund(&key, policy, 1, START_US - 30_000_000);
        assert_eq!(client.evaluate(&key, policy, 0).1, 6, "algorithm {algorithm}");
        // After a reset, the refund of an old charge does not affect newer charges.
        if algorithm == SLIDING_WINDOW_LOG {
            let (): () = redis::cmd("DEL").arg(&key).query(&mut client.caller.connection).unwrap();
            let charged_us = client.now_us;
            client.now_us += 1;
            client.call(&key, policy, COMMIT, 4);
            client.refund(&key, policy, 4, charged_us);
            client.refund(&key, policy, 4, charged_us + 1);
            client.refund(&key, policy, 4, charged_us + 1);
            assert_eq!(client.evaluate(&key, policy, 0).1, 10);
        }
    }
}

#[test]
fn an_evaluated_charge_is_counted_only_if_rejections_count() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    for algorithm in [SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, TOKEN_BUCKET] {
        let parameter = if algorithm == TOKEN_BUCKET { 10 } else { 1 };
        let policy = Policy { algorithm, limit: 10, window_us: 10_000_000, parameter };
        let key = format!("k{algorithm}");
        assert_eq!((client.evaluate(&key, policy, 7).0, client.evaluate(&key, policy, 11).0), (1, 0));
        assert_eq!(client.evaluate(&key, policy, 7).1, 10);
        assert_eq!(client.call(&key, policy, EVALUATE | COUNT_REJECTED, 4).1, 6);
        let (fits, available, retry_after, ..) = client.evaluate(&key, policy, 7);
        assert!(fits == 0 && available == 6 && retry_after > 0.0, "algorithm {algorithm}");
    }
}

#[test]
fn a_refund_finds_a_record_behind_255_newer_records() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    let policy = Policy { algorithm: SLIDING_WINDOW_LOG, limit: 1_000, window_us: 3_600_000_000, parameter: 1 };
    for (others, available) in [(255, 1_000 - 255), (256, 1_000 - 257)] {
        let key = others.to_string();
        client.call(&key, policy, COMMIT, 1);
        let charged_us = client.now_us;
        for _ in 0..others {
            client.now_us += 1;
            client.call(&key, policy, COMMIT, 1);
        }
        client.refund(&key, policy, 1, charged_us);
        assert_eq!(client.evaluate(&key, policy, 0).1, available);
    }
}

#[test]
fn refunded_records_take_no_memory() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    let policy = Policy { algorithm: SLIDING_WINDOW_LOG, limit: 1_000, window_us: 3_600_000_000, parameter: 1 };
    let committed = |client: &mut ScriptClient| {
        client.now_us += 1;
        assert_eq!(client.call("k", policy, COMMIT, 1).0, 1);
        client.now_us
    };
    for _ in 0..seed::in_this_run(8_000) {
        let others = [(); 6].map(|()| committed(&mut client));
        for charged_us in others {
            client.refund("k", policy, 1, charged_us);
        }
        if client.now_us.is_multiple_of(90) {
            committed(&mut client);
        }
    }
    let used: u64 = redis::cmd("STRLEN").arg("k").query(&mut client.caller.connection).unwrap();
    let left = client.evaluate("k", policy, 0).1;
    assert!(left < 1_000 && used < 198 + 88 * 128, "{left} left, {used} bytes");
}

#[test]
fn law_1_a_refund_under_one_limit_takes_nothing_from_another() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    let log = |limit| Policy { algorithm: SLIDING_WINDOW_LOG, limit, window_us: 3_600_000_000, parameter: 1 };
    for _ in 0..100 {
        client.now_us += 1;
        assert_eq!(client.call("log", log(100), COMMIT, 1).0, 1);
    }
    client.refund("log", log(100), 1, client.now_us);
    for _ in 0..50 {
        client.now_us += 1;
        assert_eq!(client.call("log", log(10), COUNT_REJECTED, 1).0, 0);
    }
    assert_eq!(client.evaluate("log", log(100), 0).1, 0, "the higher limit was forgotten");

    // The limits round differently: the other charge remains, with an error below one microsecond.
    let bucket = |limit| Policy { algorithm: TOKEN_BUCKET, limit, window_us: 10_000_000, parameter: limit };
    for (kept, refunded) in [(7, 3), (3, 7), (999, 7), (7, 999)] {
        let key = format!("{kept} {refunded}");
        let charged_us = client.now_us;
        assert_eq!(client.call(&key, bucket(refunded), COMMIT, 1).0, 1);
        assert_eq!(client.call(&key, bucket(kept), COMMIT, 1).0, 1);
        client.refund(&key, bucket(refunded), 1, charged_us);
        let (left, unit) = (client.evaluate(&key, bucket(kept), 0).4, (10e6 / kept as f64).ceil());
        assert!((unit..=unit + 1.0).contains(&left), "{key}: {left} left of {unit}");
    }
}

#[test]
fn law_3_a_refund_of_several_charges_beside_a_ban_by_hand_is_complete_and_touches_no_other_key() {
    let server = RedisServer::start();
    let mut client = ScriptClient::new(&server);
    let policy = Policy::log(10, 60_000_000);
    let charged_us = client.now_us;
    for key in ["a", "b"] {
        assert_eq!(client.call(key, policy, COMMIT, 4).0, 1);
    }
    // One charge of a check, whose usage takes one more double.
    let charge = |usage: u8, cost: u64, extra: u64| {
        [policy.packed(usage), [cost, extra].map(|number| (number as f64).to_le_bytes()).concat()].concat()
    };
    // Log, refund, several charges, changes by hand.
    let head = |checks: u16, charges: u8| [&[1 + 16 + 32 + 64][..], &checks.to_le_bytes(), &[charges]].concat();
    let mut call = |keys: &[&str], arguments: Vec<u8>| {
        let mut call = client.caller.script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        let reply: Vec<u8> = call.arg(arguments).arg(client.now_us).invoke(&mut client.caller.connection).unwrap();
        Numbers::read(&reply, keys.len());
    };
    // The second key is banned between the commit and the refund. The number of the first refund is 1.
    call(&["b"], [head(1, 1), charge(BAN_BY_HAND, 0, 3_600_000_000)].concat());
    let () = redis::cmd("SET").arg("1").arg("foreign").query(&mut server.connection()).unwrap();
    let refund = charge(REFUND, 4, charged_us);
    call(&["a", "b"], [head(1, 2), refund.clone(), refund].concat());
    call(&["b"], [head(1, 1), charge(UNBAN, 0, 0)].concat());
    for key in ["a", "b"] {
        assert_eq!(client.evaluate(key, policy, 0).1, 10, "{key}");
    }
}
