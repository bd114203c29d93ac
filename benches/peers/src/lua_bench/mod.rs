//! What a decision costs Redis, in time and in bytes: our script beside plain ones.

mod workload;

use std::time::Duration;

use redis::Connection;
use serde_json::json;

pub use self::workload::{Cost, Form, Situation, Subject, Workload};
use crate::{
    ROUNDS, Result,
    args::Args,
    report::Report,
    scripts::{self, Algorithm},
    server::RedisServer,
    stats::median,
};

const BATCH: usize = 64;

const fn ours(name: &'static str, algorithm: Algorithm, batch: usize) -> Subject {
    Subject { name, code: scripts::OURS, form: Form::Ours(algorithm), batch }
}

const fn plain(name: &'static str, code: &'static str) -> Subject {
    Subject { name, code, form: Form::Plain, batch: 1 }
}

const SINGLE: &str = "tollgate log";
const BATCHED: &str = "tollgate log, 64 a call";
const SORTED_SET: &str = "sorted set, a member per unit";

pub const LOG: Subject = ours(SINGLE, Algorithm::Log, 1);

const LOGS: [Subject; 5] = [
    LOG,
    ours(BATCHED, Algorithm::Log, BATCH),
    Subject { code: scripts::OURS_IN_CHUNKS, ..ours("lost: chunks in a hash, 64 a call", Algorithm::Log, BATCH) },
    plain("sorted set, a member per request", scripts::SORTED_SET_STEP_LOG),
    plain(SORTED_SET, scripts::SORTED_SET_LOG),
];

/// Their state does not grow, so one situation tells all.
const COUNTS: [Subject; 8] = [
    ours("tollgate counter", Algorithm::Counter, 1),
    ours("tollgate counter, 64 a call", Algorithm::Counter, BATCH),
    ours("tollgate fixed window", Algorithm::Fixed, 1),
    ours("tollgate fixed window, 64 a call", Algorithm::Fixed, BATCH),
    ours("tollgate token bucket", Algorithm::Bucket, 1),
    ours("tollgate token bucket, 64 a call", Algorithm::Bucket, BATCH),
    plain("counter in two keys", scripts::TWO_KEY_COUNTER),
    plain("GCRA in one string", scripts::GCRA),
];

const FILLS: [u64; 4] = [1, 100, 1_000, 100_000];
const COSTS: [u32; 3] = [1, 10, 1_000];

pub fn run(args: &Args, server: &RedisServer, report: &mut Report) -> Result<()> {
    let connection = &mut server.blocking()?;
    let slice = Duration::from_secs_f64(args.seconds / f64::from(ROUNDS));
    let mut worst = Worst::default();
    for fill in FILLS {
        for cost in COSTS {
            for allowed in [true, false] {
                let situation = Situation { fill, cost, allowed };
                let measured = compare(connection, &LOGS, situation, slice, report)?;
                summarise(&measured, situation, &mut worst, report);
            }
        }
    }
    for allowed in [true, false] {
        let situation = Situation { fill: 1_000, cost: 1, allowed };
        let measured = compare(connection, &COUNTS, situation, slice, report)?;
        if allowed {
            let [counter, counter_batched, .., bucket, bucket_batched, two_keys, gcra] = COUNTS;
            let of = |ours: Subject, theirs: Subject| cpu_ratio(&measured, ours.name, theirs.name);
            report.ratio("lua_cpu_counter_vs_two_keys", of(counter, two_keys));
            report.ratio("lua_cpu_counter_batched_vs_two_keys", of(counter_batched, two_keys));
            report.ratio("lua_cpu_bucket_vs_gcra", of(bucket, gcra));
            report.ratio("lua_cpu_bucket_batched_vs_gcra", of(bucket_batched, gcra));
        }
    }
    report.ratio("lua_cpu_batched_vs_sorted_set", worst.batched);
    report.ratio("lua_cpu_single_vs_sorted_set", worst.single);
    Ok(())
}

/// The least favourable ratios to the sorted set, over all fills, at cost 1.
#[derive(Default)]
struct Worst {
    batched: f64,
    single: f64,
}

struct Measured {
    name: &'static str,
    /// Of each round.
    redis_us: Vec<f64>,
    bytes: u64,
}

/// Measures all subjects in one situation, in interleaved rounds.
fn compare(
    connection: &mut Connection,
    subjects: &[Subject],
    situation: Situation,
    slice: Duration,
    report: &mut Report,
) -> Result<Vec<Measured>> {
    let Situation { fill, cost, allowed } = situation;
    let verdict = if allowed { "allowed" } else { "denied" };
    println!("\n{fill} requests of cost {cost} in the window, {verdict}");
    redis::cmd("FLUSHALL").exec(connection)?;
    let mut workloads = Vec::new();
    for subject in subjects {
        if !subject.can_hold(fill, cost) {
            println!("  {:<36} left out: more than a million members", subject.name);
            continue;
        }
        let keys = usize::try_from(1_000_000 / (fill * u64::from(cost)))?.clamp(1, BATCH);
        let workload = Workload::prepare(connection, *subject, situation, keys)?;
        workloads.push((workload, Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (workload, costs) in &mut workloads {
            costs.push(workload.slice(connection, slice)?);
        }
    }
    let mut measured = Vec::new();
    for (workload, costs) in &workloads {
        let cost_of = |of: fn(&Cost) -> f64| median(costs.iter().map(of).collect());
        let (redis_us, client_us) = (cost_of(|cost| cost.redis_us), cost_of(|cost| cost.client_us));
        let (name, bytes) = (workload.subject.name, workload.bytes(connection)?);
        let each = bytes as f64 / fill as f64;
        println!("  {name:<36} {redis_us:>9.2} us in Redis {bytes:>11} B {each:>9.1} B a request");
        report.figure(json!({
            "script": name, "fill": fill, "cost": cost, "allowed": allowed,
            "redis_us": redis_us, "client_us": client_us, "bytes": bytes,
        }));
        measured.push(Measured { name, redis_us: costs.iter().map(|cost| cost.redis_us).collect(), bytes });
    }
    Ok(measured)
}

fn find<'a>(measured: &'a [Measured], name: &str) -> Option<&'a Measured> {
    measured.iter().find(|measured| measured.name == name)
}

/// Of each round by itself, so that a slow round is slow for both.
fn cpu_ratio(measured: &[Measured], ours: &str, theirs: &str) -> f64 {
    match (find(measured, ours), find(measured, theirs)) {
        (Some(ours), Some(theirs)) => {
            median(ours.redis_us.iter().zip(&theirs.redis_us).map(|(ours, theirs)| ours / theirs).collect())
        }
        _ => f64::NAN,
    }
}

fn summarise(measured: &[Measured], situation: Situation, worst: &mut Worst, report: &mut Report) {
    let Situation { fill, cost, allowed } = situation;
    let single = cpu_ratio(measured, SINGLE, SORTED_SET);
    let batched = cpu_ratio(measured, BATCHED, SORTED_SET);
    let verdict = if allowed { "" } else { "_denied" };
    let priced = if cost == 1 { String::new() } else { format!("_cost_{cost}") };
    report.ratio(&format!("lua_cpu_single_vs_sorted_set_{fill}{priced}{verdict}"), single);
    report.ratio(&format!("lua_cpu_batched_vs_sorted_set_{fill}{priced}{verdict}"), batched);
    if cost == 1 && allowed {
        worst.single = worst.single.max(single);
        worst.batched = worst.batched.max(batched);
    }
    if fill == 1_000 && allowed {
        let each = |name| find(measured, name).map_or(f64::NAN, |found| found.bytes as f64 / fill as f64);
        report.ratio(&format!("bytes_per_entry_1000{priced}"), each(SINGLE));
        report.ratio(&format!("bytes_per_entry_1000{priced}_sorted_set"), each(SORTED_SET));
    }
}
