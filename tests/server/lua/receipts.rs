//! Receipts of commits on a cluster, which refunds name.

use tollgate::redis::{self, Script};

use super::call::{
    COMMIT, Caller, FIXED_WINDOW, Policy, REFUND, SCRIPT, SLIDING_WINDOW_COUNTER, SLIDING_WINDOW_LOG, TOKEN_BUCKET,
};
use super::report::Numbers;
use crate::support::redis_server::RedisServer;

const NOW_US: u64 = 1_767_225_600_000_000;
const TTL_US: u64 = 20_000_000;
/// Shadow policies.
const SHADOW: u8 = 16;

fn policy(algorithm: u8) -> Policy {
    Policy { algorithm, limit: 10, window_us: 3_600_000_000, parameter: if algorithm == TOKEN_BUCKET { 10 } else { 1 } }
}

/// Sends a check of charges under one policy, with a receipt. Returns whether each charge fits, and the receipt last.
fn call(caller: &mut Caller, usage: u8, charges: &[(&str, u8, u64)], receipt: &str, policy: Policy) -> Vec<bool> {
    call_within(0, caller, usage, charges, receipt, policy)
}

/// The same under a policy of a calendar, whose window starts at this time; 0 without a calendar.
fn call_within(
    start_us: u64,
    caller: &mut Caller,
    usage: u8,
    charges: &[(&str, u8, u64)],
    receipt: &str,
    policy: Policy,
) -> Vec<bool> {
    let is_refund = usage == REFUND;
    let extra = if is_refund { 0_f64.to_le_bytes().to_vec() } else { Vec::new() };
    // The algorithm, receipts and refunds, several charges.
    let mut packed = vec![(1 << (policy.algorithm - 1)) + 16 + 32, 1, 0, u8::try_from(charges.len() + 1).unwrap()];
    for (_, shadow, cost) in charges {
        let flag = if is_refund { 0 } else { *shadow };
        let mut record = policy.packed(usage + flag);
        if start_us > 0 {
            // The parameter is the last field.
            record.truncate(record.len() - 8);
            record.extend((start_us as f64).to_le_bytes());
        }
        packed.extend([record, (*cost as f64).to_le_bytes().to_vec(), extra.clone()].concat());
    }
    let doubles = [0.0, TTL_US as f64, 0.0, 0.0].map(f64::to_le_bytes).concat();
    packed.extend([&[16, usage][..], &doubles, &extra].concat());
    let mut call = caller.script.prepare_invoke();
    for (key, ..) in charges {
        call.key(*key);
    }
    let reply: Vec<u8> = call.key(receipt).arg(packed).arg(NOW_US).invoke(&mut caller.connection).unwrap();
    let (_, errors) = Numbers::read_with_errors(&reply, charges.len() + 1);
    assert_eq!(errors, "");
    let number = |index: usize| f64::from_le_bytes(reply[8 * index..][..8].try_into().unwrap());
    (1..=charges.len() + 1).map(|index| number(index) as u64 % 2 == 1).collect()
}

#[test]
fn law_3_a_refund_that_names_a_receipt_may_be_repeated_and_may_overtake_its_commit() {
    let server = RedisServer::start();
    let mut caller = Caller { connection: server.connection(), script: Script::new(SCRIPT) };
    for algorithm in [SLIDING_WINDOW_LOG, SLIDING_WINDOW_COUNTER, FIXED_WINDOW, TOKEN_BUCKET] {
        let policy = policy(algorithm);
        let (count, other) = (&*format!("count:{algorithm}"), &*format!("other:{algorithm}"));
        let receipt = |name: &str| format!("receipt:{algorithm}:{name}");
        let available = |caller: &mut Caller, key: &str| caller.check(key, policy, COMMIT, 0, Some(NOW_US)).1;
        let both = [(count, 0, 3), (other, 0, 2)];
        // Two commits at the same instant; one is refunded, twice.
        for name in ["kept", "refunded"] {
            assert_eq!(call(&mut caller, COMMIT, &both, &receipt(name), policy), [true; 3]);
        }
        for _ in 0..2 {
            call(&mut caller, REFUND, &both, &receipt("refunded"), policy);
            assert_eq!((available(&mut caller, count), available(&mut caller, other)), (7, 8), "{algorithm}");
        }
        // The refund comes first, so the commit is denied.
        call(&mut caller, REFUND, &both, &receipt("late"), policy);
        assert!(!call(&mut caller, COMMIT, &both, &receipt("late"), policy)[2]);
        assert_eq!((available(&mut caller, count), available(&mut caller, other)), (7, 8), "{algorithm}");
        // A denied check leaves no receipt.
        assert!(!call(&mut caller, COMMIT, &[(count, 0, 8)], &receipt("denied"), policy)[0]);
        let exists: bool = redis::cmd("EXISTS").arg(receipt("denied")).query(&mut caller.connection).unwrap();
        assert!(!exists, "{algorithm}");
        // A shadow charge that did not fit was not committed, so it is not refunded either.
        let shadow = [(count, 0, 1), (other, SHADOW, 9)];
        assert_eq!(call(&mut caller, COMMIT, &shadow, &receipt("shadow"), policy)[..2], [true, false]);
        call(&mut caller, REFUND, &shadow, &receipt("shadow"), policy);
        assert_eq!((available(&mut caller, count), available(&mut caller, other)), (7, 8), "{algorithm}");
        for name in ["kept", "refunded", "late", "shadow"] {
            let left: i64 = redis::cmd("PTTL").arg(receipt(name)).query(&mut caller.connection).unwrap();
            // A minute is added with the clock of a client.
            assert!((70_000..=80_000).contains(&left), "law 6: {name}: {left}");
        }
    }
}

/// Makes a hold of three units in a log, or refunds it, with a receipt.
fn hold(caller: &mut Caller, usage: u8, receipt: &str) {
    let policy = policy(SLIDING_WINDOW_LOG);
    let extra = if usage == REFUND { 0_f64.to_le_bytes().to_vec() } else { Vec::new() };
    let doubles = |doubles: &[f64]| doubles.iter().flat_map(|double| double.to_le_bytes()).collect::<Vec<u8>>();
    // The log, receipts and refunds, several charges, holds. Then a check of three charges.
    let mut packed = vec![1_u8 + 16 + 32 + 128, 1, 0, 3];
    // 8 is added to the algorithm of a charge that is followed by its holds.
    packed.extend([&[policy.algorithm + 8][..], &policy.packed(usage)[1..], &doubles(&[3.0]), &extra].concat());
    // The holds are charged if they end unsettled. A refund settles the hold.
    let fields = [doubles(&[0.0, 60e6]), b"the hold".to_vec(), doubles(&[0.0])].concat();
    packed.extend([&[8, u8::from(usage == REFUND)][..], &fields, &extra].concat());
    packed.extend([&[16, usage][..], &doubles(&[0.0, TTL_US as f64, 0.0, 0.0]), &extra].concat());
    let mut call = caller.script.prepare_invoke();
    for key in ["count", "holds", receipt] {
        call.key(key);
    }
    let reply: Vec<u8> = call.arg(packed).arg(NOW_US).invoke(&mut caller.connection).unwrap();
    let (_, errors) = Numbers::read_with_errors(&reply, 3);
    assert_eq!(errors, "");
}

#[test]
fn law_1_a_refund_that_is_repeated_ends_no_hold_that_was_made_anew() {
    let server = RedisServer::start();
    let mut caller = Caller { connection: server.connection(), script: Script::new(SCRIPT) };
    let is_open = |caller: &mut Caller| {
        let end: Option<f64> = redis::cmd("ZSCORE").arg("holds").arg("the hold").query(&mut caller.connection).unwrap();
        end.is_some()
    };
    hold(&mut caller, COMMIT, "first");
    assert!(is_open(&mut caller));
    hold(&mut caller, REFUND, "first");
    assert!(!is_open(&mut caller));
    hold(&mut caller, COMMIT, "second");
    hold(&mut caller, REFUND, "first");
    assert!(is_open(&mut caller), "its own receipt has no refund");
    // This refund overtakes its commit, and there is a hold of the same name.
    hold(&mut caller, REFUND, "late");
    assert!(is_open(&mut caller));
    hold(&mut caller, REFUND, "second");
    assert!(!is_open(&mut caller));
}

/// The receipt names more keys than the refund.
#[test]
fn law_3_a_refund_of_one_charge_gives_nothing_back_if_that_charge_was_left_out() {
    let server = RedisServer::start();
    let mut caller = Caller { connection: server.connection(), script: Script::new(SCRIPT) };
    let policy = policy(SLIDING_WINDOW_COUNTER);
    for key in ["first", "second"] {
        caller.check(key, policy, COMMIT, 6, Some(NOW_US));
    }
    let charges = [("charged", 0, 1), ("first", SHADOW, 5), ("second", SHADOW, 5)];
    assert_eq!(call(&mut caller, COMMIT, &charges, "receipt", policy), [true, false, false, true]);
    call(&mut caller, REFUND, &charges[2..], "receipt", policy);
    assert_eq!(caller.check("second", policy, COMMIT, 0, Some(NOW_US)).1, 4, "available");
}

/// By the rules of the zone of another client, the window ends an hour later, and that client has begun it.
#[test]
fn law_3_a_refund_under_a_calendar_finds_its_commit_in_a_window_that_another_client_has_begun() {
    let server = RedisServer::start();
    let mut caller = Caller { connection: server.connection(), script: Script::new(SCRIPT) };
    let policy = policy(FIXED_WINDOW);
    let start_us = NOW_US - 1;
    let ends_us = [start_us + policy.window_us, start_us + 2 * policy.window_us];
    let set = |caller: &mut Caller, key: &str, value: &[u8]| {
        let (): () = redis::cmd("SET").arg(key).arg(value).query(&mut caller.connection).unwrap();
    };
    let begun = |end_us: u64, count: f64| [end_us as f64, count, NOW_US as f64, 0.0].map(f64::to_le_bytes).concat();
    let count = |caller: &mut Caller, key: &str| {
        let value: Vec<u8> = redis::cmd("GET").arg(key).query(&mut caller.connection).unwrap();
        f64::from_le_bytes(value[8..16].try_into().unwrap())
    };
    // The script has a way of its own for checks of one charge.
    for keys in [&["one"][..], &["one", "other"]] {
        let charges: Vec<(&str, u8, u64)> = keys.iter().map(|key| (*key, 0, 3)).collect();
        let mut step = |usage, receipt: &str, value: Option<Vec<u8>>| {
            if let Some(value) = &value {
                keys.iter().for_each(|key| set(&mut caller, key, value));
            }
            let fit = call_within(start_us, &mut caller, usage, &charges, receipt, policy);
            assert!(fit.into_iter().all(|fits| fits), "{usage} of {receipt}");
            keys.iter().map(|key| count(&mut caller, key)).collect::<Vec<_>>()
        };
        let all = |count: f64| vec![count; keys.len()];
        for end_us in ends_us {
            let receipt = format!("receipt:{}:{end_us}", keys.len());
            assert_eq!(step(COMMIT, &receipt, Some(begun(end_us, 4.0))), all(7.0));
            for _ in 0..2 {
                assert_eq!(step(REFUND, &receipt, None), all(4.0), "{keys:?}, a window that ends at {end_us}");
            }
            // A window that has begun since then has nothing of the commit.
            let late = format!("{receipt}:late");
            assert_eq!(step(COMMIT, &late, Some(begun(end_us, 4.0))), all(7.0));
            assert_eq!(step(REFUND, &late, Some(begun(end_us + 1, 5.0))), all(5.0), "{keys:?}, the next window");
        }
    }
    // The receipt of an instance that does not write the end of the window.
    set(&mut caller, "brief", &[&b"c"[..], &(NOW_US as f64).to_le_bytes()].concat());
    set(&mut caller, "one", &begun(ends_us[0], 7.0));
    call_within(start_us, &mut caller, REFUND, &[("one", 0, 3)], "brief", policy);
    assert_eq!(count(&mut caller, "one"), 4.0);
}
