//! Counts what the workers tell, as it comes in: memory stays flat however long a run is.

use std::{
    collections::{HashSet, VecDeque},
    ops::Not,
};

use crate::{
    DEADLINE,
    machine::stopped_us,
    record::{Kind, Record},
    support::judge::{Answer, Findings, Judge, Unknown},
    worker::{KEYS, limit_of},
};

/// Waits up to a second, in steps of 100 µs.
const STEP_US: u32 = 100;
const STEPS: usize = 10_000;
/// Those without a verdict in finer steps, up to a tenth of a second.
const FINE_US: u32 = 10;
/// Those that met an open breaker in microseconds, up to a hundredth of a second.
const FINEST_US: u32 = 1;

#[derive(Debug)]
pub(crate) struct Tally {
    judges: Vec<Judge>,
    /// Requests without a verdict that have not been given to a judge yet.
    unjudged: Vec<Record>,
    waits: Vec<u64>,
    waits_in_vain: Vec<u64>,
    waits_while_open: Vec<u64>,
    waits_of_plain: Vec<u64>,
    /// Requests that the store was asked about, and that got no verdict before the deadline was near.
    pub(crate) refused_early: u64,
    pub(crate) requests: u64,
    pub(crate) errors_to_client: u64,
    pub(crate) worst_wait_us: u32,
    /// The worst wait beyond what the machine itself was late at the same time.
    pub(crate) worst_excess_us: u32,
    /// How late plain sleeps were in the last seconds, by worker, and waits that have not been compared with them yet.
    late: Vec<VecDeque<Record>>,
    slow: Vec<(usize, Record)>,
    pub(crate) seen: Vec<Seen>,
}

/// Some of the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Keys(u8);

impl Keys {
    pub(crate) const ALL: Self = Self(u8::MAX);
    pub(crate) const NONE: Self = Self(0);
    pub(crate) fn which(chosen: impl Fn(u8) -> bool) -> Self {
        Self((0..KEYS).filter(|key| chosen(*key)).fold(0, |keys, key| keys | 1 << key))
    }

    fn of(self, times: &[Vec<u64>; KEYS as usize]) -> impl Iterator<Item = &u64> {
        times.iter().zip(0..).filter(move |(_, key)| self.0 & 1 << key != 0).flat_map(|(times, _)| times)
    }
}

impl Not for Keys {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// What is known of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) until_us: u64,
    /// When decisions of the store came, by key, at most one a millisecond.
    store_us: [Vec<u64>; KEYS as usize],
    /// When requests were left without one, as well.
    failed_us: [Vec<u64>; KEYS as usize],
    /// When, resident bytes, tasks.
    pub(crate) usage: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    /// When Redis answered again.
    pub(crate) answers_us: u64,
    pub(crate) us: u64,
    /// The same without the time during which a process was kept from running.
    pub(crate) excess_us: u64,
}

impl Tally {
    pub(crate) fn new(workers: usize) -> Self {
        let judge = |key| {
            let (limit, window) = limit_of(key);
            Judge::new(limit.into(), u64::try_from(window.as_micros()).unwrap())
        };
        Self {
            judges: (0..KEYS).map(judge).collect(),
            unjudged: Vec::new(),
            waits: vec![0; STEPS + 1],
            waits_in_vain: vec![0; STEPS + 1],
            waits_while_open: vec![0; STEPS + 1],
            waits_of_plain: vec![0; STEPS + 1],
            refused_early: 0,
            requests: 0,
            errors_to_client: 0,
            worst_wait_us: 0,
            worst_excess_us: 0,
            late: vec![VecDeque::new(); workers],
            slow: Vec::new(),
            seen: vec![Seen::default(); workers],
        }
    }

    pub(crate) fn add(&mut self, worker: usize, record: Record) {
        let seen = &mut self.seen[worker];
        seen.until_us = seen.until_us.max(record.end_us);
        match record.kind {
            Kind::Allowed | Kind::Denied | Kind::Remembered => {
                let retry_after_us = (record.kind != Kind::Allowed).then_some(record.extra);
                let answer = Answer { time_us: record.time_us, cost: record.cost.into(), retry_after_us };
                self.judges[usize::from(record.key)].answer(answer);
                if record.kind != Kind::Remembered {
                    thinned(&mut seen.store_us[usize::from(record.key)], record.end_us);
                }
            }
            Kind::Passed | Kind::Refused => {
                self.unjudged.push(record);
                thinned(&mut seen.failed_us[usize::from(record.key)], record.end_us);
            }
            Kind::Late => self.late[worker].push_back(record),
            Kind::Plain => count(&mut self.waits_of_plain, record.wait_us / FINEST_US),
            Kind::Usage => seen.usage.push((record.end_us, record.time_us, record.extra)),
        }
        if record.is_request() {
            self.requests += 1;
            self.errors_to_client += u64::from(record.kind == Kind::Refused);
            count(&mut self.waits, record.wait_us / STEP_US);
            if matches!(record.kind, Kind::Passed | Kind::Refused) {
                count(&mut self.waits_in_vain, record.wait_us / FINE_US);
                if record.extra == 1 {
                    count(&mut self.waits_while_open, record.wait_us / FINEST_US);
                } else {
                    self.refused_early += u64::from(u128::from(record.wait_us) * 2 < DEADLINE.as_micros());
                }
            }
            self.worst_wait_us = self.worst_wait_us.max(record.wait_us);
            if record.wait_us > self.worst_excess_us {
                self.slow.push((worker, record));
            }
        }
    }

    /// Judges all that was before `time_us`, when all workers have told of it. Whatever failed during one of `outages`
    /// may have been charged until a second after its end.
    pub(crate) fn settle(&mut self, time_us: u64, outages: &[(u64, u64)]) {
        const LATER: u64 = 1_000_000;
        for record in self.unjudged.extract_if(.., |record| record.start_us() < time_us) {
            let from_us = record.start_us();
            let outage = outages.iter().find(|(start, end)| (start - LATER..end + LATER).contains(&record.end_us));
            let until_us = outage.map_or(record.end_us, |(_, end)| *end.max(&record.end_us)) + LATER;
            let unknown = Unknown { from_us, until_us, cost: record.cost.into() };
            self.judges[usize::from(record.key)].unknown(unknown);
        }
        for judge in &mut self.judges {
            judge.settle(time_us);
        }
        self.compare_waits(time_us);
        for seen in &mut self.seen {
            seen.usage.retain(|(at, ..)| *at >= time_us);
            // Recoveries have been looked up by now.
            for times in seen.store_us.iter_mut().chain(&mut seen.failed_us) {
                times.retain(|at| *at >= time_us);
            }
        }
    }

    /// Takes off the slow waits the time during which their process was kept from running.
    fn compare_waits(&mut self, time_us: u64) {
        for late in &mut self.late {
            late.make_contiguous().sort_by_key(Record::start_us);
        }
        for (worker, record) in self.slow.extract_if(.., |(_, record)| record.end_us < time_us) {
            let machine_us = stopped_us(&self.late[worker], record.start_us(), record.end_us);
            let excess_us = u64::from(record.wait_us).saturating_sub(machine_us);
            self.worst_excess_us = self.worst_excess_us.max(u32::try_from(excess_us).unwrap());
        }
        for late in &mut self.late {
            late.retain(|late| late.end_us + 2_000_000 > time_us);
        }
    }

    /// From `answers_us`, when Redis answered again, until the last of the workers had a decision of the store's on one
    /// of these keys. `None` as long as one has not.
    pub(crate) fn recovery(&self, answers_us: u64, keys: Keys) -> Option<Recovery> {
        let mut last = Recovery { answers_us, us: 0, excess_us: 0 };
        for (seen, late) in self.seen.iter().zip(&self.late) {
            let first_us = *keys.of(&seen.store_us).filter(|at| **at >= answers_us).min()?;
            let mut late: Vec<&Record> = late.iter().filter(|late| late.end_us > answers_us).collect();
            late.sort_by_key(|late| late.start_us());
            let us = first_us - answers_us;
            last.us = last.us.max(us);
            last.excess_us = last.excess_us.max(us - stopped_us(late, answers_us, first_us));
        }
        Some(last)
    }

    /// Milliseconds of workers in which one had a verdict of the store's for a request, and in which one had none.
    pub(crate) fn between(&self, from_us: u64, until_us: u64, keys: Keys) -> (usize, usize) {
        let during = |times| {
            let times = keys.of(times).filter(|at| (from_us..until_us).contains(at));
            times.map(|at| at / 1_000).collect::<HashSet<_>>().len()
        };
        let served = self.seen.iter().map(|seen| during(&seen.store_us)).sum();
        (served, self.seen.iter().map(|seen| during(&seen.failed_us)).sum())
    }

    /// What the store admitted in that time, it may have forgotten.
    pub(crate) fn forgets(&mut self, from_us: u64, until_us: u64) {
        for judge in &mut self.judges {
            judge.forgets(from_us, until_us);
        }
    }

    /// Requests that got no verdict, of those that began in that time. Before they are settled.
    pub(crate) fn without_verdict(&self, from_us: u64, until_us: u64) -> usize {
        self.unjudged.iter().filter(|record| (from_us..until_us).contains(&record.start_us())).count()
    }

    pub(crate) fn p999_wait_us(&self) -> u32 {
        STEP_US * quantile(&self.waits, 1_000)
    }

    /// Of the requests that got no verdict: what an outage adds to nearly every one.
    pub(crate) fn p99_without_verdict_us(&self) -> u32 {
        FINE_US * quantile(&self.waits_in_vain, 100)
    }

    /// Of requests that met an open breaker: how many there were, and the wait of all but one in `share` of them. And that
    /// of requests that met no limiter, at the same time.
    pub(crate) fn while_open(&self, share: u64) -> (u64, u32, u32) {
        let [open, plain] =
            [&self.waits_while_open, &self.waits_of_plain].map(|waits| FINEST_US * quantile(waits, share));
        (self.waits_while_open.iter().sum(), open, plain)
    }

    /// What the judges found; and of the keys with long windows, which multiple of the limit was admitted in one.
    pub(crate) fn found(&self) -> (Findings, f64) {
        let mut sum = Findings::default();
        let mut most = 0.0_f64;
        for (judge, key) in self.judges.iter().zip(0..) {
            sum.add(judge.found());
            most = most.max(judge.found().most as f64 / f64::from(limit_of(key).0));
        }
        (sum, most)
    }

    /// The deadline, and five milliseconds for everything else.
    pub(crate) fn keeps_the_deadline(&self) -> bool {
        u128::from(self.worst_excess_us) <= DEADLINE.as_micros() + 5_000
    }
}

fn count(histogram: &mut [u64], step: u32) {
    let last = histogram.len() - 1;
    histogram[last.min(step as usize)] += 1;
}

/// The end of the step that all but one in `share` are within.
fn quantile(histogram: &[u64], share: u64) -> u32 {
    let mut above = histogram.iter().sum::<u64>() / share;
    for (step, count) in histogram.iter().enumerate().rev() {
        if *count > above {
            return step as u32 + 1;
        }
        above -= count;
    }
    0
}

fn thinned(times: &mut Vec<u64>, at: u64) {
    if times.last().is_none_or(|last| at >= last + 1_000) {
        times.push(at);
    }
}
