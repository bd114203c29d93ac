//! Results of a run, aggregated as the workers report them, so that memory stays constant.

use std::collections::{HashSet, VecDeque};
use std::ops::Not;

use crate::record::{Kind, Record};
use crate::support::judge::{Answer, Findings, Judge, Unknown};
use crate::worker::{KEYS, limit_of};
use crate::{DEADLINE, scheduling::stopped_us, support::asserts_times};

/// Step of the histogram of all waits, which ends at one second.
const STEP_US: u32 = 100;
const STEPS: usize = 10_000;
/// Step of the histogram of waits without a verdict, which ends at a tenth of a second.
const FINE_US: u32 = 10;
/// Step of the histograms of waits with an open breaker and without a limiter, which end at a hundredth of a second.
const FINEST_US: u32 = 1;

#[derive(Debug)]
pub(crate) struct Results {
    judges: Vec<Judge>,
    /// Requests without a verdict that are not yet passed to a judge.
    unjudged: Vec<Record>,
    waits: Vec<u64>,
    waits_without_verdict: Vec<u64>,
    waits_while_open: Vec<u64>,
    waits_without_limiter: Vec<u64>,
    /// Requests without a verdict whose wait ended before half of the deadline, while the breaker was closed.
    pub(crate) early_failures: u64,
    pub(crate) requests: u64,
    pub(crate) errors_to_client: u64,
    pub(crate) worst_wait_us: u32,
    /// The longest wait, less the time during which the process did not run.
    pub(crate) worst_excess_us: u32,
    /// Recent overruns of sleeps, by worker.
    late: Vec<VecDeque<Record>>,
    /// Long waits, with their worker, that are not yet compared with `late`.
    slow: Vec<(usize, Record)>,
    pub(crate) seen: Vec<Activity>,
}

/// A set of keys, as a bit mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Keys(u8);

impl Keys {
    pub(crate) const ALL: Self = Self(u8::MAX);
    pub(crate) const NONE: Self = Self(0);
    pub(crate) fn matching(chosen: impl Fn(u8) -> bool) -> Self {
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

/// The timeline of one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    /// Time of the latest record.
    pub(crate) until_us: u64,
    /// Times of decisions of the store, by key, sampled at most once per millisecond.
    store_us: [Vec<u64>; KEYS as usize],
    /// Times of requests without a verdict, sampled likewise.
    failed_us: [Vec<u64>; KEYS as usize],
    /// Time, resident bytes, tasks.
    pub(crate) usage: Vec<(u64, u64, u64)>,
}

/// The time from the end of an outage to the first decision of the slowest worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    /// Time at which Redis served all keys again.
    pub(crate) serves_again_us: u64,
    pub(crate) us: u64,
    /// `us` less the time during which the process did not run.
    pub(crate) excess_us: u64,
}

impl Results {
    pub(crate) fn new(workers: usize) -> Self {
        let judge = |key| {
            let (limit, window) = limit_of(key);
            Judge::new(limit, u64::try_from(window.as_micros()).unwrap())
        };
        Self {
            judges: (0..KEYS).map(judge).collect(),
            unjudged: Vec::new(),
            waits: vec![0; STEPS + 1],
            waits_without_verdict: vec![0; STEPS + 1],
            waits_while_open: vec![0; STEPS + 1],
            waits_without_limiter: vec![0; STEPS + 1],
            early_failures: 0,
            requests: 0,
            errors_to_client: 0,
            worst_wait_us: 0,
            worst_excess_us: 0,
            late: vec![VecDeque::new(); workers],
            slow: Vec::new(),
            seen: vec![Activity::default(); workers],
        }
    }

    pub(crate) fn add(&mut self, worker: usize, record: Record) {
        let seen = &mut self.seen[worker];
        seen.until_us = seen.until_us.max(record.end_us);
        match record.kind {
            Kind::Allowed | Kind::Denied | Kind::Cached => {
                let retry_after_us = (record.kind != Kind::Allowed).then_some(record.extra);
                let answer = Answer { time_us: record.time_us, cost: record.cost.into(), retry_after_us };
                self.judges[usize::from(record.key)].answer(answer);
                if record.kind != Kind::Cached {
                    push_sampled(&mut seen.store_us[usize::from(record.key)], record.end_us);
                }
            }
            Kind::Passed | Kind::Refused | Kind::Overloaded => {
                self.unjudged.push(record);
                push_sampled(&mut seen.failed_us[usize::from(record.key)], record.end_us);
            }
            Kind::Oversleep => self.late[worker].push_back(record),
            Kind::Unlimited => count(&mut self.waits_without_limiter, record.wait_us / FINEST_US),
            Kind::Usage => seen.usage.push((record.end_us, record.time_us, record.extra)),
        }
        if record.is_request() {
            self.requests += 1;
            // Redis and the proxy may be slow because the machine is busy.
            let is_error = record.kind == Kind::Refused || (asserts_times() && record.kind == Kind::Overloaded);
            self.errors_to_client += u64::from(is_error);
            count(&mut self.waits, record.wait_us / STEP_US);
            if matches!(record.kind, Kind::Passed | Kind::Refused | Kind::Overloaded) {
                count(&mut self.waits_without_verdict, record.wait_us / FINE_US);
                if record.extra == 1 {
                    count(&mut self.waits_while_open, record.wait_us / FINEST_US);
                } else {
                    self.early_failures += u64::from(u128::from(record.wait_us) * 2 < DEADLINE.as_micros());
                }
            }
            self.worst_wait_us = self.worst_wait_us.max(record.wait_us);
            if record.wait_us > self.worst_excess_us {
                self.slow.push((worker, record));
            }
        }
    }

    /// Judges everything before `time_us`, which all workers must have reported. Redis may charge a request that failed
    /// during one of the `outages` until one second after the end of that outage.
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
            // Recoveries before `time_us` have been evaluated.
            for times in seen.store_us.iter_mut().chain(&mut seen.failed_us) {
                times.retain(|at| *at >= time_us);
            }
        }
    }

    /// Subtracts from the slow waits the time during which their process did not run.
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

    /// The time from `serves_again_us` until every worker has had a decision of the store on one of these keys. `None`
    /// while a worker has had none.
    pub(crate) fn recovery(&self, serves_again_us: u64, keys: Keys) -> Option<Recovery> {
        let mut last = Recovery { serves_again_us, us: 0, excess_us: 0 };
        for (seen, late) in self.seen.iter().zip(&self.late) {
            let first_us = *keys.of(&seen.store_us).filter(|at| **at >= serves_again_us).min()?;
            let mut late: Vec<&Record> = late.iter().filter(|late| late.end_us > serves_again_us).collect();
            late.sort_by_key(|late| late.start_us());
            let us = first_us - serves_again_us;
            last.us = last.us.max(us);
            last.excess_us = last.excess_us.max(us - stopped_us(late, serves_again_us, first_us));
        }
        Some(last)
    }

    /// Number of milliseconds, summed over the workers, with a verdict of the store, and with a failure to get one.
    pub(crate) fn worker_milliseconds(&self, from_us: u64, until_us: u64, keys: Keys) -> (usize, usize) {
        let during = |times| {
            let times = keys.of(times).filter(|at| (from_us..until_us).contains(at));
            times.map(|at| at / 1_000).collect::<HashSet<_>>().len()
        };
        let served = self.seen.iter().map(|seen| during(&seen.store_us)).sum();
        (served, self.seen.iter().map(|seen| during(&seen.failed_us)).sum())
    }

    /// Declares to the judges that the store may lose what it admits in this period.
    pub(crate) fn may_lose(&mut self, from_us: u64, until_us: u64) {
        for judge in &mut self.judges {
            judge.may_lose(from_us, until_us);
        }
    }

    /// Number of requests started in the period that got no verdict. Call before [`settle`](Self::settle).
    pub(crate) fn without_verdict(&self, from_us: u64, until_us: u64) -> usize {
        self.unjudged.iter().filter(|record| (from_us..until_us).contains(&record.start_us())).count()
    }

    pub(crate) fn p999_wait_us(&self) -> u32 {
        STEP_US * quantile(&self.waits, 1_000)
    }

    /// 99th percentile of the waits of requests without a verdict: the latency that an outage adds.
    pub(crate) fn p99_without_verdict_us(&self) -> u32 {
        FINE_US * quantile(&self.waits_without_verdict, 100)
    }

    /// The number of requests that met an open breaker, the wait that only one in `share` of them exceeded, and the
    /// same quantile of calls without the limiter.
    pub(crate) fn open_breaker_waits(&self, share: u64) -> (u64, u32, u32) {
        let [open, plain] =
            [&self.waits_while_open, &self.waits_without_limiter].map(|waits| FINEST_US * quantile(waits, share));
        (self.waits_while_open.iter().sum(), open, plain)
    }

    /// The findings of all judges, and the highest admitted multiple of a limit in a window.
    pub(crate) fn found(&self) -> (Findings, f64) {
        let mut sum = Findings::default();
        let mut most = 0.0_f64;
        for (judge, key) in self.judges.iter().zip(0..) {
            sum.add(judge.found());
            most = most.max(judge.found().most as f64 / limit_of(key).0 as f64);
        }
        (sum, most)
    }

    /// Whether the worst wait stays within the deadline plus five milliseconds for all other work.
    pub(crate) fn keeps_the_deadline(&self) -> bool {
        u128::from(self.worst_excess_us) <= DEADLINE.as_micros() + 5_000
    }
}

fn count(histogram: &mut [u64], step: u32) {
    let last = histogram.len() - 1;
    histogram[last.min(step as usize)] += 1;
}

/// The upper bound of the step that only one in `share` values exceeds.
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

/// Appends a time unless less than a millisecond has passed since the last one.
fn push_sampled(times: &mut Vec<u64>, at: u64) {
    if times.last().is_none_or(|last| at >= last + 1_000) {
        times.push(at);
    }
}
