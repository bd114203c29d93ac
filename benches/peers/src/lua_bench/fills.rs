//! Time and memory of a decision for each number of requests in the window.

use std::time::Duration;

use serde_json::json;

use super::subject::{
    BATCH, BUCKET, BUCKET_BATCHED, COUNTER, COUNTER_BATCHED, GCRA, Hosted, LOG, LOG_BATCHED, SORTED_SET, Subject,
    TWO_KEYS,
};
use super::workload::{Scenario, Timing, Workload};
use crate::{ROUNDS, Result, args::Args, report::Report, stats::median};

/// Numbers of requests in the window.
const FILLS: [u64; 4] = [1, 100, 1_000, 100_000];
const COSTS: [u64; 3] = [1, 10, 1_000];

/// Measures the logs with every fill and cost.
pub fn logs(subjects: &mut [Hosted], args: &Args, slice: Duration, report: &mut Report) -> Result<()> {
    let mut worst = Worst::default();
    for &fill in args.some_of(&FILLS) {
        for &cost in args.some_of(&COSTS) {
            for allowed in [true, false] {
                let scenario = Scenario { fill, cost, allowed };
                let measured = compare(subjects, scenario, slice, report)?;
                summarise(&measured, scenario, &mut worst, report);
            }
        }
    }
    report.ratio("lua_cpu_batched_vs_sorted_set", worst.batched);
    report.ratio("lua_cpu_single_vs_sorted_set", worst.single);
    Ok(())
}

/// Measures scripts whose state has a constant size, with one fill and cost.
pub fn constant_state(subjects: &mut [Hosted], slice: Duration, report: &mut Report) -> Result<()> {
    for allowed in [true, false] {
        let measured = compare(subjects, Scenario { fill: 1_000, cost: 1, allowed }, slice, report)?;
        if allowed {
            let ratio = |one, other| cpu_ratio(&measured, one, other);
            report.ratio("lua_cpu_counter_vs_two_keys", ratio(COUNTER, TWO_KEYS));
            report.ratio("lua_cpu_counter_batched_vs_two_keys", ratio(COUNTER_BATCHED, TWO_KEYS));
            report.ratio("lua_cpu_bucket_vs_gcra", ratio(BUCKET, GCRA));
            report.ratio("lua_cpu_bucket_batched_vs_gcra", ratio(BUCKET_BATCHED, GCRA));
        }
    }
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
fn compare(subjects: &mut [Hosted], scenario: Scenario, slice: Duration, report: &mut Report) -> Result<Vec<Measured>> {
    let Scenario { fill, cost, allowed } = scenario;
    let verdict = if allowed { "allowed" } else { "denied" };
    println!("\n{fill} requests of cost {cost} in the window, {verdict}");
    let mut workloads = Vec::new();
    for Hosted { subject, connection, .. } in subjects {
        redis::cmd("FLUSHALL").exec(connection)?;
        if !scenario.can_be_held_by(subject) {
            println!("  {:<36} left out: the set would have more than a million members", subject.name);
            continue;
        }
        let keys = usize::try_from(1_000_000 / (fill * cost))?.clamp(1, BATCH);
        let workload = Workload::prepare(connection, *subject, scenario, keys)?;
        workloads.push((workload, connection, Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (workload, connection, timings) in &mut workloads {
            timings.push(workload.slice(connection, slice)?);
        }
    }
    let mut measured = Vec::new();
    for (workload, connection, timings) in &mut workloads {
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

fn find(measured: &[Measured], subject: Subject) -> Option<&Measured> {
    measured.iter().find(|measured| measured.name == subject.name)
}

/// The median of the ratios of the single rounds, because a slow round slows both subjects.
fn cpu_ratio(measured: &[Measured], one: Subject, other: Subject) -> f64 {
    match (find(measured, one), find(measured, other)) {
        (Some(one), Some(other)) => {
            median(one.redis_us.iter().zip(&other.redis_us).map(|(one, other)| one / other).collect())
        }
        _ => f64::NAN,
    }
}

fn summarise(measured: &[Measured], scenario: Scenario, worst: &mut Worst, report: &mut Report) {
    let Scenario { fill, cost, allowed } = scenario;
    let single = cpu_ratio(measured, LOG, SORTED_SET);
    let batched = cpu_ratio(measured, LOG_BATCHED, SORTED_SET);
    let verdict_suffix = if allowed { "" } else { "_denied" };
    let cost_suffix = if cost == 1 { String::new() } else { format!("_cost_{cost}") };
    report.ratio(&format!("lua_cpu_single_vs_sorted_set_{fill}{cost_suffix}{verdict_suffix}"), single);
    report.ratio(&format!("lua_cpu_batched_vs_sorted_set_{fill}{cost_suffix}{verdict_suffix}"), batched);
    if cost == 1 && allowed {
        worst.single = worst.single.max(single);
        worst.batched = worst.batched.max(batched);
    }
    if fill == 1_000 && allowed {
        let bytes_per_entry =
            |subject| find(measured, subject).map_or(f64::NAN, |found| found.bytes as f64 / fill as f64);
        report.ratio(&format!("bytes_per_entry_1000{cost_suffix}"), bytes_per_entry(LOG));
        report.ratio(&format!("bytes_per_entry_1000{cost_suffix}_sorted_set"), bytes_per_entry(SORTED_SET));
    }
}
