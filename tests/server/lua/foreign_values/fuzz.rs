//! Random values and arguments for the script.

use std::time::Duration;

use tollgate::redis::{self, Connection, Script};

use super::plan::{self, Outcome, Plan, all_plans};
use super::random::Random;
use super::values::{self, Value};
use crate::{lua::call::SCRIPT, support::redis_server::RedisServer};

const START_US: u64 = 1_767_225_600_000_000;
const TEN_YEARS_US: u64 = 315_576_000_000_000;

/// Sends calls in which checks of foreign values have neighbours, and the same neighbours alone.
pub(super) struct Fuzz {
    server: RedisServer,
    connection: Connection,
    script: Script,
    random: Random,
    /// Each plan, with values of its keys that the script has written.
    plans: Vec<(Plan, Vec<Vec<Value>>)>,
    now_us: u64,
    pub(super) rounds: u64,
    /// Counts of what was seen.
    pub(super) foreign: u64,
    pub(super) failed: u64,
    /// The most processor time of the server in one round, in microseconds.
    pub(super) most_us: f64,
}

impl Fuzz {
    pub(super) fn new(seed: u64) -> Self {
        let server = RedisServer::start();
        let mut connection = server.connection();
        // A call that does not end fails the test.
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _: String = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).query(&mut connection).unwrap();
        let mut fuzz = Self {
            server,
            connection,
            script: Script::new(SCRIPT),
            random: Random(seed),
            plans: Vec::new(),
            now_us: START_US,
            rounds: 0,
            foreign: 0,
            failed: 0,
            most_us: 0.0,
        };
        for plan in all_plans() {
            let values = fuzz.write_values(&plan);
            fuzz.plans.push((plan, values));
        }
        fuzz
    }

    /// Charges a check repeatedly, and returns the values of its keys at several times.
    fn write_values(&mut self, plan: &Plan) -> Vec<Vec<Value>> {
        let mut plan = plan.clone();
        for charge in &mut plan.charges {
            charge.usage = 0;
            charge.cost = charge.cost.max(1);
        }
        let keys: Vec<_> = (0..plan.keys()).map(|key| format!("written:{key}")).collect();
        let mut values = Vec::new();
        let gap_us = plan.charges[0].policy.window_us / 60;
        for step in 0..70 {
            for charge in &mut plan.charges {
                if let Some((change, _)) = &mut charge.holds {
                    *change = plan::Change::Check(if step % 3 == 0 { *b"holdhold" } else { plan::NO_HOLD });
                }
            }
            let now = self.now_us + step * gap_us;
            let _: Vec<u8> = self.call(&plan, &[1], &keys, &now.to_string()).unwrap();
            if [0, 1, 7, 8, 9, 20, 40, 69].contains(&step) {
                values.push(self.values_of(&plan, &keys));
            }
        }
        self.now_us += 70 * gap_us;
        // The same counts under bans, and bans without a count. Some have ended when they are met.
        for ban_us in [1, 60_000_000, TEN_YEARS_US, TEN_YEARS_US] {
            for (index, key) in keys.iter().enumerate().filter(|(index, _)| !plan.is_of_holds(*index)) {
                let ban = plan.ban(index, ban_us);
                let _: Vec<u8> = self.call(&ban, &[1], std::slice::from_ref(key), &self.now_us.to_string()).unwrap();
            }
            values.push(self.values_of(&plan, &keys));
            if ban_us == TEN_YEARS_US {
                let (): () = redis::cmd("DEL").arg(&keys).query(&mut self.connection).unwrap();
            }
        }
        let (): () = redis::cmd("DEL").arg(&keys).query(&mut self.connection).unwrap();
        values
    }

    fn values_of(&mut self, plan: &Plan, keys: &[String]) -> Vec<Value> {
        let value =
            |(index, key): (usize, &String)| values::written(&mut self.connection, key, plan.is_of_holds(index));
        keys.iter().enumerate().map(value).collect()
    }

    fn call(&mut self, plan: &Plan, runs: &[usize], keys: &[String], now: &str) -> redis::RedisResult<Vec<u8>> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.script.get_hash()).arg(keys.len()).arg(keys).arg(plan.packed(runs)).arg(now);
        call.query(&mut self.connection)
    }

    /// The processor time of the server so far, in microseconds.
    fn processor_us(&mut self) -> f64 {
        let info: String = redis::cmd("INFO").arg("cpu").query(&mut self.connection).unwrap();
        let seconds = |name| info.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse::<f64>().unwrap();
        (seconds("used_cpu_user:") + seconds("used_cpu_sys:")) * 1e6
    }

    /// One call with a run of checks, some of which have foreign values.
    pub(super) fn round(&mut self) {
        self.rounds += 1;
        let index = self.random.below(self.plans.len() as u64) as usize;
        let (mut plan, values) = self.plans[index].clone();
        let by_client = self.random.below(4) > 0;
        self.now_us += self.random.one_of(&[0, 1, 1_000, 100_000, 5_000_000]);
        plan.committed_us = self.now_us.saturating_sub(self.random.one_of(&[0, 1, 1_000, 100_000]));
        let now = if by_client { self.now_us.to_string() } else { String::new() };
        // Values near the time of the call are more often valid.
        let at_us = if by_client { self.now_us } else { wall_clock_us() };
        let size = plan.keys();
        let checks = self.random.one_of(&[3, 8, 24, 64]);
        let clock = if by_client { 'c' } else { 's' };
        let (mut keys, mut alone, mut is_foreign) = (Vec::new(), Vec::new(), Vec::new());
        let (mut writes, mut written) = (redis::pipe(), Vec::new());
        // A pipeline must not be empty.
        writes.del("foreign:0:0").ignore();
        for check in 0..checks {
            let foreign = self.random.below(4) > 0;
            is_foreign.push(foreign);
            if !foreign {
                let neighbour = self.random.below(3);
                for key in 0..size {
                    keys.push(format!("{clock}:{index}:{neighbour}:{key}"));
                    alone.push(format!("alone:{index}:{neighbour}:{key}"));
                }
                continue;
            }
            // One key or all keys of the check are foreign; the others have values that the script has written.
            let one = self.random.below(size as u64 + 1) as usize;
            let base = values[self.random.below(values.len() as u64) as usize].clone();
            for (key, value) in base.into_iter().enumerate() {
                let name = format!("foreign:{check}:{key}");
                let value = if one == key || one == size { self.change(&plan, key, value, at_us) } else { value };
                value.write(&mut writes, &name);
                written.push((check, name.clone(), value.is_a_ban_that_changes(at_us)));
                keys.push(name);
            }
        }
        let (): () = writes.query(&mut self.connection).unwrap();
        let compares = self.random.below(8) == 0 && !written.is_empty();
        let before = if compares { self.dumps(&written) } else { Vec::new() };
        let first = self.random.below(checks as u64 + 1) as usize;
        let runs: Vec<_> = [first, checks - first].into_iter().filter(|&run| run > 0).collect();
        let started = self.processor_us();
        let reply = self.call(&plan, &runs, &keys, &now).unwrap();
        let spent_us = self.processor_us() - started;
        self.most_us = self.most_us.max(spent_us);
        assert!(spent_us < 100_000.0, "{} takes {spent_us} us", self.context(&plan));
        let outcomes = plan.read(&reply, checks);
        let context = self.context(&plan);
        for (outcome, foreign) in outcomes.iter().zip(&is_foreign) {
            let Outcome::Failed(text) = outcome else { continue };
            assert!(*foreign, "{context}: a neighbour fails: {text}");
            assert!(text.contains("NOTACOUNT") || text.contains("WRONGTYPE"), "{context}: {text}");
            self.failed += 1;
        }
        self.foreign += is_foreign.iter().filter(|foreign| **foreign).count() as u64;
        if compares && plan.fails_without_change() {
            let after = self.dumps(&written);
            for (((check, key, may_change), before), after) in written.iter().zip(before).zip(after) {
                let failed = matches!(outcomes[*check], Outcome::Failed(_));
                assert!(!failed || *may_change || before == after, "{context}: a failed check has changed {key}");
            }
        }
        if by_client && !alone.is_empty() {
            let reply = self.call(&plan, &[alone.len() / size], &alone, &now).unwrap();
            let neighbours = outcomes.iter().zip(&is_foreign).filter(|(_, foreign)| !**foreign);
            let neighbours: Vec<_> = neighbours.map(|(outcome, _)| outcome.clone()).collect();
            assert_eq!(plan.read(&reply, neighbours.len()), neighbours, "{context}");
        }
    }

    /// The values of keys, as Redis writes them.
    fn dumps(&mut self, keys: &[(usize, String, bool)]) -> Vec<Option<Vec<u8>>> {
        let mut dumps = redis::pipe();
        for (_, key, _) in keys {
            dumps.cmd("DUMP").arg(key);
        }
        dumps.query(&mut self.connection).unwrap()
    }

    fn context(&self, plan: &Plan) -> String {
        format!("round {} with {plan:?} on {}", self.rounds, self.server.url())
    }

    /// A foreign value in place of `value`.
    fn change(&mut self, plan: &Plan, key: usize, value: Value, now_us: u64) -> Value {
        match value {
            Value::Text(text) => values::text(&mut self.random, &text, now_us),
            Value::Sorted(members) => values::sorted(&mut self.random, &members, now_us),
            _ if plan.is_of_holds(key) => values::sorted(&mut self.random, &values::head(-1.0), now_us),
            _ => values::text(&mut self.random, &[0; 40], now_us),
        }
    }

    /// A call with wrong arguments, and values that the script has written.
    pub(super) fn wrong_arguments(&mut self) {
        self.rounds += 1;
        let index = self.random.below(self.plans.len() as u64) as usize;
        let (plan, values) = self.plans[index].clone();
        let keys: Vec<_> = (0..plan.keys() * 3).map(|key| format!("arguments:{key}")).collect();
        let mut writes = redis::pipe();
        for (key, value) in keys.iter().zip(values.concat()) {
            value.write(&mut writes, key);
        }
        let (): () = writes.query(&mut self.connection).unwrap();
        let mut packed = plan.packed(&[3]);
        match self.random.below(4) {
            0 => packed = (0..self.random.below(80)).map(|_| self.random.below(256) as u8).collect(),
            1 => packed.truncate(self.random.below(packed.len() as u64 + 1) as usize),
            _ => {
                for _ in 0..=self.random.below(3) {
                    let at = self.random.below(packed.len() as u64) as usize;
                    let field = values::double(&mut self.random, self.now_us).to_le_bytes();
                    let width = self.random.one_of(&[1, 1, 2, 4, 8]);
                    for (byte, new) in packed.iter_mut().skip(at).zip(&field[..width]) {
                        *byte = *new;
                    }
                }
            }
        }
        let now = match self.random.below(3) {
            0 => self.now_us.to_string(),
            1 => self.random.one_of(&["", "text", "nan", "inf", "-inf", "-1", "1e308", "0.5", "0x10"]).to_owned(),
            _ => format!("{:?}", values::double(&mut self.random, self.now_us)),
        };
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.script.get_hash()).arg(keys.len()).arg(&keys).arg(packed).arg(now);
        let started = self.processor_us();
        let reply: redis::RedisResult<redis::Value> = call.query(&mut self.connection);
        assert!(reply.is_ok_and(|_| true) || !self.server.command("PING").is_empty());
        let spent_us = self.processor_us() - started;
        assert!(spent_us < 100_000.0, "{} takes {spent_us} us", self.context(&plan));
    }
}

pub(super) fn wall_clock_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}
