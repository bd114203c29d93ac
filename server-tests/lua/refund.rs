//! What is given back leaves no trace: a count from which charges were given back is, in every field, the count that
//! never had them.

use tollgate::redis::{self, Connection, Script};

use super::protocol::{Report, SCRIPT, reports};
use crate::support::redis_server::RedisServer;

const START_US: u64 = 1_767_225_600_000_000;

/// What is done with a charge.
const PAY: u8 = 0;
const COUNT_REJECTED: u8 = 1;
const REFUSED: u8 = 2;
const GIVE_BACK: u8 = 4;

/// As the script numbers them.
const LOG: u8 = 1;
const COUNTER: u8 = 2;
const WINDOW: u8 = 3;
const BUCKET: u8 = 4;

#[derive(Clone, Copy)]
struct Policy {
    algorithm: u8,
    limit: u32,
    window_us: u64,
    /// The log's resolution or the bucket's burst.
    parameter: u32,
}

struct Counts {
    connection: Connection,
    script: Script,
    now_us: u64,
}

impl Counts {
    fn new(server: &RedisServer) -> Self {
        Self { connection: server.connection(), script: Script::new(SCRIPT), now_us: START_US }
    }

    fn call(&mut self, key: &str, policy: Policy, with: u8, cost: u32, paid_us: u64) -> Report {
        let mut packed = vec![policy.algorithm, with];
        packed.extend(policy.limit.to_le_bytes());
        packed.extend((policy.window_us as f64).to_le_bytes());
        packed.extend(f64::from(policy.parameter).to_le_bytes());
        let mut charge = vec![1, 0, 0];
        charge.extend(cost.to_le_bytes());
        let mut call = self.script.prepare_invoke();
        call.key(key).arg(self.now_us).arg(packed).arg(charge);
        if with == GIVE_BACK {
            call.arg(&(paid_us as f64).to_le_bytes()[..]);
        }
        let reply: Vec<u8> = call.invoke(&mut self.connection).unwrap();
        assert_ne!(reply[8], 2, "{}", String::from_utf8_lossy(&reply));
        reports(&reply[8..])[0]
    }

    fn look(&mut self, key: &str, policy: Policy, cost: u32) -> Report {
        self.call(key, policy, REFUSED, cost, 0)
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

/// Charges two counts alike, and one of them now and then with more, which is given back some steps later and in any
/// order. Compares the two whenever nothing is outstanding.
fn compare(counts: &mut Counts, policy: Policy, costs: u64, pace_us: u64, outstanding: usize) {
    let mut random = Random(u64::from(policy.limit) + pace_us + outstanding as u64);
    let (more, less) = (format!("more:{}:{pace_us}", policy.limit), format!("less:{}:{pace_us}", policy.limit));
    let (mut owed, mut compared, mut returned) = (Vec::new(), 0, 0);
    let mut collects = true;
    for step in 0..4_000 {
        counts.now_us += match random.below(400) {
            0 => policy.window_us / 2,
            1 => policy.window_us * 2,
            2..150 => 0,
            _ => random.below(pace_us),
        };
        let cost = u32::try_from(random.below(costs) + 1).unwrap();
        if counts.look(&more, policy, cost).0 == 1 {
            assert_eq!(counts.call(&more, policy, PAY, cost, 0).0, 1);
            if collects && random.below(3) > 0 {
                owed.push((counts.now_us, cost));
            } else {
                assert_eq!(counts.call(&less, policy, PAY, cost, 0).0, 1, "step {step}: more given than taken");
            }
        }
        if owed.len() >= outstanding {
            collects = false;
        }
        if !collects && !owed.is_empty() {
            let (paid_us, cost) = owed.swap_remove(usize::try_from(random.below(owed.len() as u64)).unwrap());
            counts.call(&more, policy, GIVE_BACK, cost, paid_us);
            returned += 1;
        }
        if owed.is_empty() {
            collects = true;
            let (given, never) = (counts.look(&more, policy, cost), counts.look(&less, policy, cost));
            if policy.algorithm == BUCKET {
                assert!(given.1 <= never.1, "step {step}: {given:?} against {never:?}");
            } else {
                assert_eq!(given, never, "step {step}");
            }
            compared += 1;
        }
    }
    assert!(compared >= 5 && returned > 100, "{compared} compared, {returned} given back");
}

#[test]
fn a_log_is_what_it_would_be_without_what_was_given_back() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    let log = |limit, resolution| Policy { algorithm: LOG, limit, window_us: 10_000_000, parameter: resolution };
    // Few records and many, at their limit and far from it, rings that grow all the time; and coarse stamps.
    for (policy, costs, pace_us) in [
        (log(5, 1), 3, 2_000_000),
        (log(100, 1), 2, 200_000),
        (log(3_000, 1), 40, 100_000),
        (log(50_000, 1), 30, 1_000),
        (log(200_000, 1), 30, 10),
        (log(2_000, 50_000), 30, 20_000),
    ] {
        for outstanding in [1, 2, 7, 100] {
            compare(&mut counts, policy, costs, pace_us + outstanding as u64, outstanding);
        }
    }
}

/// A record's place is told by the wait of the cost that needs it to leave.
#[test]
fn every_record_of_a_log_is_found_after_a_ring_grew_and_became_smaller() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    for (left, kept) in [0, 5, 18].into_iter().flat_map(|left| (1..70).step_by(4).map(move |kept| (left, kept))) {
        let policy = Policy { algorithm: LOG, limit: left + kept + 30, window_us: 1_000_000, parameter: 1 };
        let (key, mut stamps) = (format!("k{left}:{kept}"), Vec::new());
        let pay = |counts: &mut Counts| {
            counts.now_us += 1;
            assert_eq!(counts.call(&key, policy, PAY, 1, 0).0, 1);
            counts.now_us
        };
        // These leave the window in between.
        for _ in 0..left {
            pay(&mut counts);
        }
        counts.now_us += policy.window_us / 2;
        stamps.extend((0..kept).map(|_| pay(&mut counts)));
        counts.now_us += policy.window_us / 2;
        for turns in [0, 7, 15, 29] {
            let mut owed: Vec<_> = (0..30).map(|_| pay(&mut counts)).collect();
            owed.rotate_left(turns);
            for paid_us in owed.into_iter().rev() {
                counts.call(&key, policy, GIVE_BACK, 1, paid_us);
            }
        }
        stamps.extend((0..30 + left).map(|_| pay(&mut counts)));
        for (cost, stamp) in (1..).zip(stamps) {
            let (_, _, retry_after, ..) = counts.look(&key, policy, cost);
            let leaves = (stamp + policy.window_us - counts.now_us) as f64;
            assert_eq!(retry_after, leaves, "{left} left, {kept} kept, cost {cost}");
        }
    }
}

#[test]
fn the_others_are_what_they_would_be_without_what_was_given_back_and_a_bucket_never_more() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    for (algorithm, limit) in [(COUNTER, 100), (COUNTER, 7_000), (WINDOW, 101), (WINDOW, 7_001)] {
        let policy = Policy { algorithm, limit, window_us: 10_000_000, parameter: 0 };
        for outstanding in [1, 7, 40] {
            compare(&mut counts, policy, 9, 300_000 + outstanding as u64, outstanding);
        }
    }
    for limit in [102, 7_002] {
        let policy = Policy { algorithm: BUCKET, limit, window_us: 10_000_000, parameter: limit / 2 };
        for outstanding in [1, 7, 40] {
            compare(&mut counts, policy, 9, 30_000 + outstanding as u64, outstanding);
        }
    }
}

#[test]
fn a_bucket_gets_back_all_but_what_may_have_come_in_since() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    // Seven units in ten seconds: none of them takes whole microseconds.
    let policy = Policy { algorithm: BUCKET, limit: 7, window_us: 10_000_000, parameter: 7 };
    assert_eq!(counts.call("k", policy, PAY, 3, 0).1, 4);
    let before = counts.look("k", policy, 0);
    counts.call("k", policy, PAY, 4, 0);
    counts.call("k", policy, GIVE_BACK, 4, START_US);
    assert_eq!(counts.look("k", policy, 0), before);
    // A charge one second later: what comes in during that second may have been lost.
    counts.call("k", policy, PAY, 2, 0);
    counts.now_us += 1_000_000;
    counts.call("k", policy, PAY, 1, 0);
    counts.call("k", policy, GIVE_BACK, 2, START_US);
    let (_, _, _, _, reset) = counts.look("k", policy, 0);
    // Three units and one, less the second that has passed and more the one that may have been lost.
    assert_eq!(reset, 4.0 * 10e6 / 7.0 - (4.0 * 10e6 / 7.0) % 1.0 + 1.0);
    // And of a charge that has long been refilled nothing comes back.
    counts.now_us += 1_000_000;
    counts.call("k", policy, PAY, 1, 0);
    let spent = counts.look("k", policy, 0);
    counts.call("k", policy, GIVE_BACK, 1, START_US);
    assert_eq!(counts.look("k", policy, 0), spent);
}

#[test]
fn what_is_not_there_is_not_given_back() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    for algorithm in [LOG, COUNTER, WINDOW] {
        let policy = Policy { algorithm, limit: 10, window_us: 10_000_000, parameter: 1 };
        let key = format!("k{algorithm}");
        counts.call(&key, policy, GIVE_BACK, 1, START_US);
        assert_eq!(counts.look(&key, policy, 0).1, 10);
        counts.call(&key, policy, PAY, 4, 0);
        // More than there is, and at another time.
        counts.call(&key, policy, GIVE_BACK, 5, START_US);
        counts.call(&key, policy, GIVE_BACK, 1, START_US - 30_000_000);
        assert_eq!(counts.look(&key, policy, 0).1, 6, "algorithm {algorithm}");
        // After its key was reset, a charge is not taken from those that came since.
        if algorithm == LOG {
            let (): () = redis::cmd("DEL").arg(&key).query(&mut counts.connection).unwrap();
            let paid_us = counts.now_us;
            counts.now_us += 1;
            counts.call(&key, policy, PAY, 4, 0);
            counts.call(&key, policy, GIVE_BACK, 4, paid_us);
            counts.call(&key, policy, GIVE_BACK, 4, paid_us + 1);
            counts.call(&key, policy, GIVE_BACK, 4, paid_us + 1);
            assert_eq!(counts.look(&key, policy, 0).1, 10);
        }
    }
}

#[test]
fn a_refused_check_is_judged_and_counts_only_where_rejections_count() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    for algorithm in [LOG, COUNTER, WINDOW, BUCKET] {
        let parameter = if algorithm == BUCKET { 10 } else { 1 };
        let policy = Policy { algorithm, limit: 10, window_us: 10_000_000, parameter };
        let key = format!("k{algorithm}");
        assert_eq!((counts.look(&key, policy, 7).0, counts.look(&key, policy, 11).0), (1, 0));
        assert_eq!(counts.look(&key, policy, 7).1, 10);
        assert_eq!(counts.call(&key, policy, REFUSED | COUNT_REJECTED, 4, 0).1, 6);
        let (fits, available, retry_after, ..) = counts.look(&key, policy, 7);
        assert!(fits == 0 && available == 6 && retry_after > 0.0, "algorithm {algorithm}");
    }
}

#[test]
fn the_log_looks_back_over_255_other_records() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    let policy = Policy { algorithm: LOG, limit: 1_000, window_us: 3_600_000_000, parameter: 1 };
    for (others, available) in [(255, 1_000 - 255), (256, 1_000 - 257)] {
        let key = others.to_string();
        counts.call(&key, policy, PAY, 1, 0);
        let paid_us = counts.now_us;
        for _ in 0..others {
            counts.now_us += 1;
            counts.call(&key, policy, PAY, 1, 0);
        }
        counts.call(&key, policy, GIVE_BACK, 1, paid_us);
        assert_eq!(counts.look(&key, policy, 0).1, available);
    }
}

#[test]
fn records_that_were_given_back_take_no_memory() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    let policy = Policy { algorithm: LOG, limit: 1_000, window_us: 3_600_000_000, parameter: 1 };
    let paid = |counts: &mut Counts| {
        counts.now_us += 1;
        assert_eq!(counts.call("k", policy, PAY, 1, 0).0, 1);
        counts.now_us
    };
    for _ in 0..5_000 {
        let others = [(); 6].map(|()| paid(&mut counts));
        for paid_us in others {
            counts.call("k", policy, GIVE_BACK, 1, paid_us);
        }
        if counts.now_us.is_multiple_of(90) {
            paid(&mut counts);
        }
    }
    let used: u64 = redis::cmd("STRLEN").arg("k").query(&mut counts.connection).unwrap();
    let left = counts.look("k", policy, 0).1;
    assert!(left < 1_000 && used < 128 + 44 * 256, "{left} left, {used} bytes");
}

#[test]
fn law_1_what_is_given_back_under_one_limit_takes_nothing_from_another() {
    let server = RedisServer::start();
    let mut counts = Counts::new(&server);
    let log = |limit| Policy { algorithm: LOG, limit, window_us: 3_600_000_000, parameter: 1 };
    for _ in 0..100 {
        counts.now_us += 1;
        assert_eq!(counts.call("log", log(100), PAY, 1, 0).0, 1);
    }
    counts.call("log", log(100), GIVE_BACK, 1, counts.now_us);
    for _ in 0..50 {
        counts.now_us += 1;
        assert_eq!(counts.call("log", log(10), COUNT_REJECTED, 1, 0).0, 0);
    }
    assert_eq!(counts.look("log", log(100), 0).1, 0, "the higher limit is known still");

    // The parts of a microsecond differ: what is left is the other's charge, and less than a microsecond.
    let bucket = |limit| Policy { algorithm: BUCKET, limit, window_us: 10_000_000, parameter: limit };
    for (kept, given) in [(7, 3), (3, 7), (999, 7), (7, 999)] {
        let key = format!("{kept} {given}");
        let paid_us = counts.now_us;
        assert_eq!(counts.call(&key, bucket(given), PAY, 1, 0).0, 1);
        assert_eq!(counts.call(&key, bucket(kept), PAY, 1, 0).0, 1);
        counts.call(&key, bucket(given), GIVE_BACK, 1, paid_us);
        let (left, unit) = (counts.look(&key, bucket(kept), 0).4, (10e6 / f64::from(kept)).ceil());
        assert!((unit..=unit + 1.0).contains(&left), "{key}: {left} left of {unit}");
    }
}
