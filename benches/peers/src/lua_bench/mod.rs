//! Time and memory of a decision in Redis: tollgate's script beside plain scripts.

mod workload;

use std::time::Duration;

use redis::Connection;
use serde_json::json;

pub use self::workload::{CallFormat, Scenario, Subject, Timing, Workload};
use crate::{
    ROUNDS, Result,
    args::Args,
    report::Report,
    scripts::{self, Algorithm},
    server::Server,
    stats::median,
};

/// Checks per call of the batched subjects.
const BATCH: usize = 64;

const fn tollgate(name: &'static str, algorithm: Algorithm, batch: usize) -> Subject {
    Subject { name, code: scripts::TOLLGATE, format: CallFormat::Tollgate(algorithm), batch }
}

const fn plain(name: &'static str, code: &'static str) -> Subject {
    Subject { name, code, format: CallFormat::Plain, batch: 1 }
}

const SINGLE: &str = "tollgate log";
const BATCHED: &str = "tollgate log, 64 per call";
const SORTED_SET: &str = "sorted set, one member per unit";

pub const LOG: Subject = tollgate(SINGLE, Algorithm::Log, 1);

const LOGS: [Subject; 5] = [
    LOG,
    tollgate(BATCHED, Algorithm::Log, BATCH),
    Subject {
        code: scripts::TOLLGATE_WITH_CHUNKED_LOG,
        ..tollgate("earlier log, hash chunks, 64 per call", Algorithm::Log, BATCH)
    },
    plain("sorted set, one member per request", scripts::SORTED_SET_STEP_LOG),
    plain(SORTED_SET, scripts::SORTED_SET_LOG),
];

/// Scripts whose state has a constant size: one fill is enough to measure them.
const CONSTANT_STATE: [Subject; 8] = [
    tollgate("tollgate counter", Algorithm::Counter, 1),
    tollgate("tollgate counter, 64 per call", Algorithm::Counter, BATCH),
    tollgate("tollgate fixed window", Algorithm::Fixed, 1),
    tollgate("tollgate fixed window, 64 per call", Algorithm::Fixed, BATCH),
    tollgate("tollgate token bucket", Algorithm::Bucket, 1),
    tollgate("tollgate token bucket, 64 per call", Algorithm::Bucket, BATCH),
    plain("counter in two keys", scripts::TWO_KEY_COUNTER),
    plain("GCRA in one string", scripts::GCRA),
];

/// Numbers of requests in the window.
const FILLS: [u64; 4] = [1, 100, 1_000, 100_000];
const COSTS: [u32; 3] = [1, 10, 1_000];

pub fn run(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let connection = &mut server.endpoint().blocking()?;
    let slice = Duration::from_secs_f64(args.seconds / f64::from(ROUNDS));
    let mut worst = Worst::default();
    for fill in FILLS {
        for cost in COSTS {
            for allowed in [true, false] {
                let scenario = Scenario { fill, cost, allowed };
                let measured = compare(connection, &LOGS, scenario, slice, report)?;
                summarise(&measured, scenario, &mut worst, report);
            }
        }
    }
    for allowed in [true, false] {
        let scenario = Scenario { fill: 1_000, cost: 1, allowed };
        let measured = compare(connection, &CONSTANT_STATE, scenario, slice, report)?;
        if allowed {
            let [counter, counter_batched, .., bucket, bucket_batched, two_keys, gcra] = CONSTANT_STATE;
            let ratio = |one: Subject, other: Subject| cpu_ratio(&measured, one.name, other.name);
            report.ratio("lua_cpu_counter_vs_two_keys", ratio(counter, two_keys));
            report.ratio("lua_cpu_counter_batched_vs_two_keys", ratio(counter_batched, two_keys));
            report.ratio("lua_cpu_bucket_vs_gcra", ratio(bucket, gcra));
            report.ratio("lua_cpu_bucket_batched_vs_gcra", ratio(bucket_batched, gcra));
        }
    }
    report.ratio("lua_cpu_batched_vs_sorted_set", worst.batched);
    report.ratio("lua_cpu_single_vs_sorted_set", worst.single);
    Ok(())
}

/// The largest ratios to the sorted set over all fills, for allowed checks of cost 1.
#[derive(Default)]
struct Worst {
    batched: f64,
    single: f64,
}

struct Measured {
    name: &'static str,
    /// Microseconds in Redis per decision, one value per round.
    redis_us: Vec<f64>,
    bytes: u64,
}

/// Measures all subjects in one scenario in interleaved rounds.
fn compare(
    connection: &mut Connection,
    subjects: &[Subject],
    scenario: Scenario,
    slice: Duration,
    report: &mut Report,
) -> Result<Vec<Measured>> {
    let Scenario { fill, cost, allowed } = scenario;
    let verdict = if allowed { "allowed" } else { "denied" };
    println!("\n{fill} requests of cost {cost} in the window, {verdict}");
    redis::cmd("FLUSHALL").exec(connection)?;
    let mut workloads = Vec::new();
    for subject in subjects {
        if !subject.can_hold(fill, cost) {
            println!("  {:<36} left out: the set would have more than a million members", subject.name);
            continue;
        }
        let keys = usize::try_from(1_000_000 / (fill * u64::from(cost)))?.clamp(1, BATCH);
        let workload = Workload::prepare(connection, *subject, scenario, keys)?;
        workloads.push((workload, Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (workload, timings) in &mut workloads {
            timings.push(workload.slice(connection, slice)?);
        }
    }
    let mut measured = Vec::new();
    for (workload, timings) in &workloads {
        let median_of = |field: fn(&Timing) -> f64| median(timings.iter().map(field).collect());
        let (redis_us, client_us) = (median_of(|timing| timing.redis_us), median_of(|timing| timing.client_us));
        let (name, bytes) = (workload.subject.name, workload.bytes(connection)?);
        let per_request = bytes as f64 / fill as f64;
        println!("  {name:<36} {redis_us:>9.2} us in Redis {bytes:>11} B {per_request:>9.1} B per request");
        report.figure(json!({
            "script": name, "fill": fill, "cost": cost, "allowed": allowed,
            "redis_us": redis_us, "client_us": client_us, "bytes": bytes,
        }));
        measured.push(Measured { name, redis_us: timings.iter().map(|timing| timing.redis_us).collect(), bytes });
    }
    Ok(measured)
}

fn find<'a>(measured: &'a [Measured], name: &str) -> Option<&'a Measured> {
    measured.iter().find(|measured| measured.name == name)
}

/// The median of the ratios of the single rounds, because a slow round slows both subjects.
fn cpu_ratio(measured: &[Measured], one: &str, other: &str) -> f64 {
    match (find(measured, one), find(measured, other)) {
        (Some(one), Some(other)) => {
            median(one.redis_us.iter().zip(&other.redis_us).map(|(one, other)| one / other).collect())
        }
        _ => f64::NAN,
    }
}

fn summarise(measured: &[Measured], scenario: Scenario, worst: &mut Worst, report: &mut Report) {
    let Scenario { fill, cost, allowed } = scenario;
    let single = cpu_ratio(measured, SINGLE, SORTED_SET);
    let batched = cpu_ratio(measured, BATCHED, SORTED_SET);
    let verdict_suffix = if allowed { "" } else { "_denied" };
    let cost_suffix = if cost == 1 { String::new() } else { format!("_cost_{cost}") };
    report.ratio(&format!("lua_cpu_single_vs_sorted_set_{fill}{cost_suffix}{verdict_suffix}"), single);
    report.ratio(&format!("lua_cpu_batched_vs_sorted_set_{fill}{cost_suffix}{verdict_suffix}"), batched);
    if cost == 1 && allowed {
        worst.single = worst.single.max(single);
        worst.batched = worst.batched.max(batched);
    }
    if fill == 1_000 && allowed {
        let bytes_per_entry = |name| find(measured, name).map_or(f64::NAN, |found| found.bytes as f64 / fill as f64);
        report.ratio(&format!("bytes_per_entry_1000{cost_suffix}"), bytes_per_entry(SINGLE));
        report.ratio(&format!("bytes_per_entry_1000{cost_suffix}_sorted_set"), bytes_per_entry(SORTED_SET));
    }
}
