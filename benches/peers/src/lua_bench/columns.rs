//! Columns for growth, steady state and denials: each script's time per check, and its ratio to a plain script's.

use serde_json::json;

use super::subject::{CallFormat, Hosted, Subject};
use super::traffic::{KEYS, Load, Timing, Traffic};
use crate::{Result, random::Random, report::Report, stats::median};

/// More rounds than elsewhere, because a round is short: a number of checks, so that the logs of slow and fast scripts
/// grow to the same length.
const ROUNDS: usize = 20;
/// Checks per second of `--seconds`: about what a plain script executes in a second.
const CHECKS_PER_SECOND: f64 = 500_000.0;

/// The medians of a script.
struct Row {
    subject: Subject,
    /// One for each traffic.
    medians: Vec<Timing>,
}

pub fn run(subjects: &mut [Hosted], seconds: f64, report: &mut Report) -> Result<()> {
    let checks = (seconds * CHECKS_PER_SECOND / ROUNDS as f64).ceil() as usize;
    let mut rows: Vec<Row> =
        subjects.iter().map(|hosted| Row { subject: hosted.subject, medians: Vec::new() }).collect();
    for traffic in Traffic::ALL {
        for (row, timing) in rows.iter_mut().zip(measure(subjects, traffic, checks)?) {
            report.figure(json!({
                "script": row.subject.name, "traffic": traffic.name(),
                "redis_us": timing.redis_us, "cpu_us": timing.cpu_us,
            }));
            row.medians.push(timing);
        }
    }
    println!("\n{KEYS} keys drawn at random: us per check, and ratio to the plain script that counts in the same way");
    print("execution", &rows, |timing| timing.redis_us);
    print("CPU time of the server's main thread", &rows, |timing| timing.cpu_us);
    ratios("lua", &rows, |timing| timing.redis_us, report);
    ratios("lua_main_thread", &rows, |timing| timing.cpu_us, report);
    Ok(())
}

/// Measures all subjects in interleaved rounds, each round in another order.
fn measure(subjects: &mut [Hosted], traffic: Traffic, checks: usize) -> Result<Vec<Timing>> {
    let mut loads = Vec::new();
    for hosted in subjects {
        loads.push((Load::prepare(hosted, traffic)?, Vec::new()));
    }
    let (mut order, mut random) = ((0..loads.len()).collect::<Vec<_>>(), Random::new(0));
    for _ in 0..ROUNDS {
        // The previous script decides what is in the processor's caches.
        random.shuffle(&mut order);
        for &index in &order {
            let (load, timings) = &mut loads[index];
            timings.push(load.slice(checks)?);
        }
    }
    Ok(loads
        .into_iter()
        .map(|(_, timings)| {
            let median_of = |field: fn(&Timing) -> f64| median(timings.iter().map(field).collect());
            Timing { redis_us: median_of(|timing| timing.redis_us), cpu_us: median_of(|timing| timing.cpu_us) }
        })
        .collect())
}

/// The ratio of a script's median to the median of its yardstick.
fn ratio(rows: &[Row], row: &Row, column: usize, field: fn(&Timing) -> f64) -> f64 {
    let yardstick = row.subject.yardstick();
    let yardstick = rows.iter().find(|row| row.subject.name == yardstick.name);
    yardstick.map_or(f64::NAN, |yardstick| field(&row.medians[column]) / field(&yardstick.medians[column]))
}

fn print(title: &str, rows: &[Row], field: fn(&Timing) -> f64) {
    print!("  {title:<38}");
    for traffic in Traffic::ALL {
        print!("{:>18}", traffic.name());
    }
    println!();
    for row in rows {
        print!("    {:<36}", row.subject.name);
        for (column, timing) in row.medians.iter().enumerate() {
            print!("{:>11.2} {:>6.3}", field(timing), ratio(rows, row, column, field));
        }
        println!();
    }
}

fn ratios(prefix: &str, rows: &[Row], field: fn(&Timing) -> f64, report: &mut Report) {
    for (column, traffic) in Traffic::ALL.into_iter().enumerate() {
        for row in rows {
            if !matches!(row.subject.format, CallFormat::Plain) {
                let (yardstick, label) = (row.subject.yardstick().label, row.subject.label);
                let name = format!("{prefix}_{}_{label}_vs_{yardstick}", traffic.name());
                report.ratio(&name, ratio(rows, row, column, field));
            }
        }
    }
}
