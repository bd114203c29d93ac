//! The server's clock is set back and forward while holds are open.
//!
//! A test cannot set the clock of a server, so these tests patch the script to read the time from a key instead of
//! TIME, as those of `lua::clock_steps`.

use std::time::Duration;

use tollgate::redis::{self, Connection, Script};
use tollgate::store::{HoldChange, SettleAnswer};
use tollgate::{Check, ManualClock, MemoryStore, Policy, policy::HoldSettings};

use crate::lua::{call::SCRIPT, policy::BAN_BY_HAND};
use crate::support::{ALGORITHMS, random::Random, redis_server::RedisServer, seed::seeds};

const START_US: u64 = 1_767_225_600_000_000;
const SECOND_US: u64 = 1_000_000;
const LIMIT: u64 = 10;
const TTL_US: u64 = 30 * SECOND_US;
const WINDOW_US: u64 = 60 * SECOND_US;

/// A server whose clock the test controls, and its only count with its holds.
struct SteppedClock {
    connection: Connection,
    script: Script,
    algorithm: u8,
    is_released: bool,
    now_us: u64,
}

/// The usages of holds.
const CHECK: u8 = 0;
const SETTLE: u8 = 1;
const RENEW: u8 = 2;
/// The usage of a charge under a shadow policy.
const SHADOW: u8 = 16;

impl SteppedClock {
    fn new(server: &RedisServer, algorithm: u8) -> Self {
        let real = "local time = call('TIME')";
        assert!(SCRIPT.contains(real));
        let script = Script::new(&SCRIPT.replace(real, "local time = {0, call('GET', 'clock')}"));
        Self { connection: server.connection(), script, algorithm, is_released: false, now_us: START_US }
    }

    /// Sends one charge beside its holds. Returns whether it fits, or whether the hold was open; and the held units.
    fn call(&mut self, cost: u64, usage: u8, id: u64, actual: u64) -> (bool, u64) {
        let runs =
            [vec![(1 << (self.algorithm - 1)) + 32 + 128, 1, 0, 2], self.records(cost, usage, id, actual)].concat();
        let reply = self.send(&["count", "holds"], runs);
        let doubles: Vec<f64> =
            reply.chunks(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap_or([0xff; 8]))).collect();
        assert!(doubles[1] >= 0.0, "{}", String::from_utf8_lossy(&reply));
        let number = doubles[2] as u64;
        (number % 2 == 1, number / 4)
    }

    /// The record of a charge, and that of its holds.
    fn records(&self, cost: u64, usage: u8, id: u64, actual: u64) -> Vec<u8> {
        let parameter = [1.0, 0.0, 0.0, LIMIT as f64][usize::from(self.algorithm) - 1];
        let mut records = vec![self.algorithm + 8, 0];
        records.extend([LIMIT as f64, WINDOW_US as f64, parameter, cost as f64].map(f64::to_le_bytes).concat());
        records.extend([8, usage]);
        records.extend([f64::from(u8::from(self.is_released)), TTL_US as f64].map(f64::to_le_bytes).concat());
        records.extend(id.to_be_bytes());
        records.extend((actual as f64).to_le_bytes());
        records
    }

    fn send(&mut self, keys: &[&str], runs: Vec<u8>) -> Vec<u8> {
        let (): () = redis::cmd("SET").arg("clock").arg(self.now_us).query(&mut self.connection).unwrap();
        let mut call = self.script.prepare_invoke();
        for key in keys {
            call.key(format!("{key}:{}", self.algorithm));
        }
        call.arg(runs).invoke(&mut self.connection).unwrap()
    }

    /// Bans the key of a shadow policy by hand.
    fn ban_shadow(&mut self, duration_us: u64) {
        let ban = [LIMIT as f64, WINDOW_US as f64, 1.0, 0.0, duration_us as f64].map(f64::to_le_bytes).concat();
        self.send(&["shadow"], [vec![1 + 64, 1, 0, 1, 1, BAN_BY_HAND], ban].concat());
    }

    /// Sends a check of the shadow policy, and of the count beside its holds.
    fn check_beside_shadow(&mut self, cost: u64) {
        let shadow = [LIMIT as f64, WINDOW_US as f64, 1.0, 1.0].map(f64::to_le_bytes).concat();
        let uses = 1 | 1 << (self.algorithm - 1) | 32 | 128;
        let records = self.records(cost, CHECK, 0, 0);
        self.send(&["shadow", "count", "holds"], [vec![uses, 1, 0, 3, 1, SHADOW], shadow, records].concat());
    }

    fn check(&mut self, cost: u64) -> bool {
        self.call(cost, CHECK, 0, 0).0
    }

    fn hold(&mut self, cost: u64, id: u64) -> bool {
        self.call(cost, CHECK, id, 0).0
    }

    fn settle(&mut self, id: u64, actual: u64) -> bool {
        self.call(0, SETTLE, id, actual).0
    }

    /// The units that a check of any size gets now.
    fn room(&mut self) -> u64 {
        (0..=LIMIT).rev().find(|&cost| self.call(cost, CHECK, u64::MAX, 0).0).map_or(0, |cost| {
            if cost > 0 {
                assert!(self.settle(u64::MAX, 0));
            }
            cost
        })
    }
}

#[test]
fn a_hold_that_ends_after_the_clock_was_set_back_or_forward_is_charged_once() {
    let server = RedisServer::start();
    for algorithm in 1..=4 {
        for step_us in [10 * SECOND_US as i64, -10 * SECOND_US as i64] {
            let (): () = redis::cmd("FLUSHDB").query(&mut server.connection()).unwrap();
            let mut server_clock = SteppedClock::new(&server, algorithm);
            server_clock.now_us += 20 * SECOND_US;
            assert!(server_clock.check(1) && server_clock.hold(5, 7));
            server_clock.now_us = server_clock.now_us.strict_add_signed(step_us);
            assert!(!server_clock.check(6), "{algorithm}, {step_us}");
            assert!(server_clock.check(2));
            // The hold ends, and later charges are as exact as before.
            server_clock.now_us += 41 * SECOND_US;
            if algorithm == 1 {
                assert_eq!(server_clock.room(), 2, "{step_us}");
            }
            assert!(!server_clock.settle(7, 1), "{algorithm}, {step_us}");
            assert_eq!(server_clock.call(0, CHECK, 0, 0), (true, 0));
            server_clock.now_us += 3 * WINDOW_US;
            assert_eq!(server_clock.room(), LIMIT, "{algorithm}, {step_us}");
        }
    }
}

#[test]
fn ending_holds_late_does_not_look_like_a_clock_that_was_set_back() {
    let server = RedisServer::start();
    for algorithm in 1..=4 {
        let mut server_clock = SteppedClock::new(&server, algorithm);
        assert!(server_clock.hold(1, 1));
        server_clock.now_us += SECOND_US;
        assert!(server_clock.hold(1, 2));
        // Only a policy without holds charges the count after the holds have ended.
        server_clock.now_us += 50 * SECOND_US;
        let plain = server_clock.now_us;
        let (): () = redis::cmd("RENAME")
            .arg(format!("holds:{algorithm}"))
            .arg("kept")
            .query(&mut server_clock.connection)
            .unwrap();
        assert!(server_clock.check(3));
        let (): () = redis::cmd("RENAME")
            .arg("kept")
            .arg(format!("holds:{algorithm}"))
            .query(&mut server_clock.connection)
            .unwrap();
        server_clock.now_us += SECOND_US;
        assert_eq!(server_clock.call(0, CHECK, 0, 0), (true, 0));
        // The count has no time of its own: what was charged leaves exactly a window after the charge.
        if algorithm == 1 {
            assert_eq!(server_clock.room(), 5);
            server_clock.now_us = plain + WINDOW_US - 1;
            assert_eq!(server_clock.room(), 5);
            server_clock.now_us += 1;
            assert_eq!(server_clock.room(), LIMIT);
        }
    }
}

#[test]
fn law_15_holds_of_a_dead_process_end_within_their_time_to_live_after_the_clock_was_set_back() {
    let server = RedisServer::start();
    for (algorithm, is_released) in (1..=4).flat_map(|algorithm| [(algorithm, false), (algorithm, true)]) {
        for back_us in [5, 3_600, 86_400].map(|seconds| seconds * SECOND_US) {
            let (): () = redis::cmd("FLUSHDB").query(&mut server.connection()).unwrap();
            let mut server_clock = SteppedClock::new(&server, algorithm);
            server_clock.is_released = is_released;
            assert!(server_clock.hold(4, 7) && server_clock.hold(6, 8));
            server_clock.now_us -= back_us;
            assert_eq!(server_clock.call(1, CHECK, 0, 0), (false, 10), "the holds are open");
            // The process of one hold lives, and renews it.
            server_clock.now_us += TTL_US - 1;
            assert_eq!(server_clock.call(0, RENEW, 8, 0), (true, 10));
            server_clock.now_us += 1;
            let case = format!("algorithm {algorithm}, released {is_released}, {back_us}");
            assert_eq!(server_clock.call(0, CHECK, 0, 0).1, 6, "{case}");
            assert!(!server_clock.settle(7, 1), "{case}");
            server_clock.now_us += TTL_US;
            assert_eq!(server_clock.call(0, CHECK, 0, 0).1, 0, "{case}");
            if is_released {
                assert_eq!(server_clock.room(), LIMIT, "{case}");
            }
        }
    }
}

#[test]
fn law_15_lost_holds_end_beside_a_ban_that_denies_nothing_after_the_clock_was_set_back() {
    let server = RedisServer::start();
    for algorithm in 1..=4 {
        let mut server_clock = SteppedClock::new(&server, algorithm);
        server_clock.is_released = true;
        assert!(server_clock.hold(LIMIT, 7));
        server_clock.ban_shadow(86_400 * SECOND_US);
        server_clock.now_us -= 3_600 * SECOND_US;
        server_clock.check_beside_shadow(1);
        server_clock.now_us += TTL_US;
        assert_eq!(server_clock.call(0, CHECK, 0, 0), (true, 0), "algorithm {algorithm}");
    }
}

/// Setting the clock there and back again, or forward, blocks nothing either.
#[test]
fn law_15_holds_end_whatever_steps_the_clock_makes() {
    let server = RedisServer::start();
    for algorithm in 1..=4 {
        let (): () = redis::cmd("FLUSHDB").query(&mut server.connection()).unwrap();
        let mut server_clock = SteppedClock::new(&server, algorithm);
        server_clock.is_released = true;
        let mut random = Random(u64::from(algorithm));
        for id in 1..=300 {
            assert!(server_clock.hold(LIMIT, id), "algorithm {algorithm}, {id}");
            for _ in 0..random.below(4) {
                let step_us = random.pick(&[5, 3_600, 86_400]) * SECOND_US;
                if random.one_in(2) {
                    server_clock.now_us += step_us;
                } else {
                    server_clock.now_us -= step_us;
                }
                server_clock.call(0, CHECK, 0, 0);
            }
            server_clock.now_us += TTL_US;
        }
    }
}

/// What one key holds under a log whose unsettled holds are released, as a list, with a time that never runs backwards.
#[derive(Default)]
struct Oracle {
    /// The ids, units and ends.
    open: Vec<(u64, u64, u64)>,
    /// The lead of the holds' time, a time that they have reached, and one that is not before the last end.
    offset_us: u64,
    reached_us: u64,
    covered_us: u64,
}

impl Oracle {
    /// The holds' time: the server's, or a later one if the clock was set back while holds were open.
    fn own_time_us(&mut self, now_us: u64) -> u64 {
        if self.open.is_empty() {
            *self = Self::default();
        }
        if now_us + self.offset_us < self.reached_us {
            self.offset_us = self.reached_us - now_us;
        }
        now_us + self.offset_us
    }

    /// The holds' time, after holds have ended.
    fn time_us(&mut self, now_us: u64) -> u64 {
        let time_us = self.own_time_us(now_us);
        self.open.retain(|(_, _, end_us)| *end_us > time_us);
        self.own_time_us(now_us)
    }

    fn held(&self) -> u64 {
        self.open.iter().map(|(_, units, _)| units).sum()
    }

    /// Notes a hold that was made or renewed.
    fn end_at(&mut self, time_us: u64, id: u64, units: u64) {
        let (end_us, part_us) = (time_us + TTL_US, TTL_US / 64);
        if self.open.is_empty() || time_us >= self.reached_us + part_us || end_us > self.covered_us {
            self.reached_us = time_us;
            self.covered_us = self.covered_us.max(end_us + part_us);
        }
        self.open.retain(|(other, ..)| *other != id);
        self.open.push((id, units, end_us));
    }
}

#[tokio::test]
async fn law_12_holds_agree_with_an_oracle_and_memory_while_the_servers_clock_steps() {
    let server = RedisServer::start();
    for seed in seeds(6) {
        let (): () = redis::cmd("FLUSHDB").query(&mut server.connection()).unwrap();
        let mut server_clock = SteppedClock::new(&server, 1 + (seed % 4) as u8);
        server_clock.is_released = true;
        let algorithm = ALGORITHMS[(seed % 4) as usize];
        let (mut random, mut oracle, clock) = (Random(seed), Oracle::default(), ManualClock::default());
        let memory = MemoryStore::new().with_clock(clock.clone());
        let holds = HoldSettings::new().with_ttl(Duration::from_micros(TTL_US)).with_unsettled_released(true);
        let policy = Policy::per_minute("p", LIMIT).unwrap().with_algorithm(algorithm).with_holds(holds);
        let mut made = Vec::new();
        for step in 1..=600 {
            let forward_us = random.pick(&[0, 1, 100_000, 1_000_000, 20_000_000, 31_000_000]);
            server_clock.now_us += random.below(forward_us + 1);
            if random.one_in(5) {
                let jump_us = random.pick(&[1, 5, 29, 3_600]) * SECOND_US + random.below(1_000);
                server_clock.now_us =
                    if random.one_in(3) { server_clock.now_us + jump_us } else { server_clock.now_us - jump_us };
            }
            // Memory keeps no time of its own, because its clock does not run backwards: it is asked at this one. Once
            // no hold is left, that is the server's time again.
            clock.set_us(oracle.own_time_us(server_clock.now_us));
            super::check(&memory, &Check::new("k", &policy, 0)).await;
            let time_us = oracle.time_us(server_clock.now_us);
            clock.set_us(time_us);
            let place = format!("seed {seed}, step {step}");
            if made.is_empty() || random.one_in(2) {
                let (id, units) = (step, 1 + random.below(4));
                let fits = oracle.held() + units <= LIMIT;
                if fits {
                    oracle.end_at(time_us, id, units);
                }
                let check = Check::hold("k", &policy, units);
                let verdict = super::check(&memory, &check).await;
                assert_eq!((fits, LIMIT - oracle.held()), (verdict.allowed, verdict.outcomes[0].available), "{place}");
                assert_eq!(server_clock.call(units, CHECK, id, 0), (fits, oracle.held()), "{place}");
                if fits {
                    made.push((id, check.charges()[0].clone()));
                }
            } else {
                let (id, hold) = &made[made.len() - 1 - random.index(made.len().min(6))];
                let open = oracle.open.iter().find(|(open, ..)| open == id).copied();
                let is_renewal = random.one_in(2);
                let expected = if open.is_some() { SettleAnswer::Settled } else { SettleAnswer::Expired };
                if let Some((id, units, _)) = open {
                    match is_renewal {
                        true => oracle.end_at(time_us, id, units),
                        false => oracle.open.retain(|(other, ..)| *other != id),
                    }
                }
                let (usage, kind) =
                    if is_renewal { (RENEW, HoldChange::Renew) } else { (SETTLE, HoldChange::Settle(0)) };
                assert_eq!(super::change(&memory, hold, kind).await, expected, "{place}");
                let answer = server_clock.call(0, usage, *id, 0);
                assert_eq!(answer, (open.is_some(), oracle.held()), "{place}");
            }
        }
    }
}
