//! One hot key on one Redis: decisions per second and calls of Redis, with leases, without, and through redis-cell.
//!
//! The load runs in processes of their own, as it would in a fleet: one, and four. With a high limit nothing is denied;
//! near the limit, the load is three times the limit, and every window is judged: no unit over the limit, and few
//! unused at its end. Then many warm keys, and at last what a lease costs for keys that are not hot.

mod cold;
mod judge;
mod keys;
mod warm;
mod worker;

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fmt, io::Read};

use serde_json::{Value, json};

use self::judge::{Judged, judge};
pub use self::worker::run as run_worker;
use crate::stats::{self, CommandStats, median};
use crate::{ROUNDS, Result, args::Args, redis_bench::Servers, report::Report};

/// The name of the mode in which a process of the load runs.
pub const WORKER: &str = "hot-worker";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Variant {
    Leased,
    Plain,
    RedisCell,
}

/// A limit, and the largest block of a lease.
#[derive(Clone, Copy, Debug)]
struct Quota {
    name: &'static str,
    limit: u64,
    window: Duration,
    lease: u64,
    /// Checks a second of all processes; 0 for as many as possible.
    load: u64,
}

/// The keys of a load, and tenths of the exponent of Zipf's law; 0 for keys that are checked evenly.
#[derive(Clone, Copy, Debug)]
struct Load {
    keys: u64,
    tenths: u64,
}

const ONE_KEY: Load = Load { keys: 1, tenths: 0 };

/// Far above the load, so that no check is denied.
const HIGH: Quota =
    Quota { name: "high", limit: 2_000_000_000, window: Duration::from_secs(60), lease: 100_000, load: 0 };
/// A third of a steady load.
const NEAR: Quota =
    Quota { name: "near", limit: 100_000, window: Duration::from_secs(1), lease: 10_000, load: 300_000 };
const PROCESSES: [usize; 2] = [1, 4];
/// The number of checks in flight, in all processes.
const IN_FLIGHT: usize = 256;
/// The time after which all processes have started.
const START: Duration = Duration::from_millis(300);

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tenths {
            0 => write!(f, "{} keys, evenly", self.keys),
            tenths => write!(f, "{} keys, Zipf {:.1}", self.keys, tenths as f64 / 10.0),
        }
    }
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Leased => "tollgate, leases",
            Self::Plain => "tollgate, no leases",
            Self::RedisCell => "redis-cell CL.THROTTLE",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Leased, Self::Plain, Self::RedisCell].into_iter().find(|variant| variant.name() == name)
    }
}

/// The results of one slice.
struct Measured {
    per_second: f64,
    calls_per_second: f64,
    judged: Judged,
}

pub fn run(args: &Args, servers: &Servers, report: &mut Report) -> Result<()> {
    let endpoints = servers.direct();
    let mut variants = vec![Variant::Leased, Variant::Plain];
    if endpoints.has_redis_cell {
        variants.push(Variant::RedisCell);
    }
    let admin = &mut endpoints.redis.blocking()?;
    let (mut most_over, mut most_unused) = (0.0_f64, 0.0_f64);
    for quota in [HIGH, NEAR] {
        for &processes in args.some_of(&PROCESSES) {
            println!("\none hot key, limit {}, processes: {processes}, {IN_FLIGHT} in flight", quota.name);
            let (rounds, time) = match quota.name {
                "high" => (ROUNDS, Duration::from_secs_f64(args.seconds) / ROUNDS),
                // Several windows.
                _ => (1, Duration::from_secs_f64(args.seconds).max(3 * quota.window) + quota.window),
            };
            let mut results: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
            for _ in 0..rounds {
                for (variant, results) in variants.iter().zip(&mut results) {
                    redis::cmd("FLUSHALL").exec(admin)?;
                    stats::reset_commandstats(admin)?;
                    let workers = work(endpoints.redis.url(), *variant, quota, ONE_KEY, processes, time)?;
                    let calls = CommandStats::read(admin)?.calls as f64;
                    results.push(measured(&workers, calls, quota, time)?);
                }
            }
            let mut per_second = Vec::new();
            for (variant, results) in variants.iter().zip(&results) {
                let of = |field: fn(&Measured) -> f64| median(results.iter().map(field).collect());
                let (rate, calls) = (of(|measured| measured.per_second), of(|measured| measured.calls_per_second));
                let unused = of(|measured| measured.judged.unused);
                let over = results.iter().map(|measured| measured.judged.over).fold(0.0, f64::max);
                per_second.push(rate);
                println!("  {:<24} {rate:>9.0}/s  {calls:>7.0} calls/s", variant.name());
                report.figure(json!({
                    "variant": variant.name(), "limit": quota.name, "processes": processes, "per_second": rate,
                    "redis_calls_per_second": calls, "unused_share": unused, "over": over,
                }));
                if quota.name == "near" && *variant != Variant::RedisCell {
                    println!("  {:<24} {:>8.2} % unused, {over} over the limit", "", 100.0 * unused);
                }
                if *variant == Variant::Leased {
                    most_over = most_over.max(over);
                    let suffix = if processes == 1 { String::new() } else { format!("_{processes}_processes") };
                    if quota.name == "high" {
                        report.ratio(&format!("hot_key_decisions_per_second{suffix}"), rate);
                        report.ratio(&format!("hot_key_redis_calls_per_second{suffix}"), calls);
                    } else {
                        most_unused = most_unused.max(unused);
                        report.ratio(&format!("hot_key_near_limit_redis_calls_per_second{suffix}"), calls);
                    }
                }
            }
            for (variant, rate) in variants.iter().zip(&per_second).skip(1) {
                let other = if *variant == Variant::Plain { "no_lease" } else { "redis_cell" };
                if quota.load == 0 {
                    report.ratio(&format!("hot_key_{processes}_vs_{other}"), per_second[0] / rate);
                }
            }
        }
    }
    report.ratio("hot_key_unused_share", most_unused);
    report.ratio("hot_key_over", most_over);
    warm::run(args, &endpoints.redis, report)?;
    cold::run(args, &endpoints.redis, report)
}

/// Runs a load in processes. Returns what they print.
fn work(url: &str, variant: Variant, quota: Quota, load: Load, processes: usize, time: Duration) -> Result<Vec<Value>> {
    let start = SystemTime::now().duration_since(UNIX_EPOCH)? + START;
    let mut children = Vec::new();
    for _ in 0..processes {
        let numbers = [
            u128::from(quota.limit),
            quota.window.as_millis(),
            u128::from(quota.lease),
            (IN_FLIGHT / processes) as u128,
            start.as_millis(),
            time.as_millis(),
            u128::from(quota.load) / processes as u128,
            u128::from(load.keys),
            u128::from(load.tenths),
        ];
        let child = Command::new(std::env::current_exe()?)
            .args([WORKER, url, variant.name()])
            .args(numbers.map(|number| number.to_string()))
            .stdout(Stdio::piped())
            .spawn()?;
        children.push(child);
    }
    let mut results = Vec::new();
    for mut child in children {
        let mut text = String::new();
        child.stdout.take().ok_or("the output of a worker is piped")?.read_to_string(&mut text)?;
        if !child.wait()?.success() {
            return Err(format!("a worker of {} has failed", variant.name()).into());
        }
        results.push(serde_json::from_str(&text)?);
    }
    Ok(results)
}

/// Runs a load on an empty server. Returns the decisions that count, and the calls.
fn slice(
    admin: &mut redis::Connection,
    url: &str,
    variant: Variant,
    quota: Quota,
    load: Load,
    processes: usize,
    time: Duration,
) -> Result<(f64, f64)> {
    redis::cmd("FLUSHALL").exec(admin)?;
    stats::reset_commandstats(admin)?;
    let workers = work(url, variant, quota, load, processes, time)?;
    let decisions = workers.iter().filter_map(|worker| worker["decisions"].as_f64()).sum();
    Ok((decisions, CommandStats::read(admin)?.calls as f64))
}

fn measured(workers: &[Value], calls: f64, quota: Quota, time: Duration) -> Result<Measured> {
    let decisions: f64 = workers.iter().filter_map(|worker| worker["decisions"].as_f64()).sum();
    let mut admitted = Vec::new();
    for worker in workers {
        let by_ms: Vec<u64> = serde_json::from_value(worker["admitted"].clone())?;
        admitted.resize(admitted.len().max(by_ms.len()), 0);
        admitted.iter_mut().zip(by_ms).for_each(|(sum, units)| *sum += units);
    }
    let seconds = time.as_secs_f64();
    Ok(Measured {
        per_second: decisions / seconds,
        calls_per_second: calls / seconds,
        judged: judge(&admitted, quota.limit, quota.window, time),
    })
}
