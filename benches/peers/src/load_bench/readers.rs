//! What the load generators print.

use serde_json::Value;

use super::outcome::{Latency, Outcome};
use crate::Result;

/// Adds this number of responses with this status.
fn add(outcome: &mut Outcome, status: &str, number: u64) {
    match status {
        "200" => outcome.ok += number,
        "429" => outcome.denied += number,
        _ => outcome.failed += number,
    }
}

fn number(value: &Value, path: &str) -> Result<f64> {
    value.pointer(path).and_then(Value::as_f64).ok_or_else(|| format!("its report has no number {path}").into())
}

/// Seconds in the report, microseconds in the figures.
pub fn oha(stdout: &str) -> Result<Outcome> {
    let report: Value = serde_json::from_str(stdout)?;
    let us = |name: &str| -> Result<f64> { Ok(number(&report, &format!("/latencyPercentiles/{name}"))? * 1e6) };
    let latency = Latency { p50: us("p50")?, p99: us("p99")?, p999: us("p99.9")? };
    let mut outcome =
        Outcome { latency, per_second: number(&report, "/summary/requestsPerSec")?, ..Outcome::default() };
    for (status, number) in report["statusCodeDistribution"].as_object().into_iter().flatten() {
        add(&mut outcome, status, number.as_u64().unwrap_or_default());
    }
    for (error, number) in report["errorDistribution"].as_object().into_iter().flatten() {
        // Requests that were in flight at the end.
        if error != "aborted due to deadline" {
            outcome.failed += number.as_u64().unwrap_or_default();
        }
    }
    Ok(outcome)
}

/// A line of the log is the time of a request, the status or -1, and the latency in microseconds.
pub fn h2load(stdout: &str, log: &str) -> Result<Outcome> {
    let rate = stdout.lines().find_map(|line| line.strip_prefix("finished in ")?.split(", ").nth(1)?.split(' ').next());
    let per_second = rate.ok_or("it prints no rate")?.parse()?;
    let mut outcome = Outcome { per_second, ..Outcome::default() };
    let mut times = Vec::new();
    for line in log.lines() {
        let [_, status, us] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(format!("its log has the line {line:?}").into());
        };
        add(&mut outcome, status, 1);
        times.push(us.parse()?);
    }
    outcome.latency = Latency::of(times);
    Ok(outcome)
}

/// The line that the script writes.
pub fn wrk(stdout: &str) -> Result<Outcome> {
    let line = stdout.lines().find(|line| line.starts_with('{')).ok_or("its script wrote nothing")?;
    let report: Value = serde_json::from_str(line)?;
    let of = |name: &str| number(&report, name);
    let denied = of("/denied")? as u64;
    let requests = of("/requests")?;
    Ok(Outcome {
        ok: requests as u64 - denied,
        denied,
        failed: of("/failed")? as u64,
        per_second: requests / of("/us")? * 1e6,
        latency: Latency { p50: of("/p50")?, p99: of("/p99")?, p999: of("/p999")? },
    })
}

/// Lines of numbers below their names: the first one is the latency in seconds, the seventh the status, and the eighth
/// the time since the start.
pub fn hey(stdout: &str) -> Result<Outcome> {
    let (mut outcome, mut times, mut end) = (Outcome::default(), Vec::new(), 0_f64);
    for line in stdout.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [seconds, _, _, _, _, _, status, since] = fields[..] else {
            return Err(format!("it prints the line {line:?}").into());
        };
        add(&mut outcome, status, 1);
        let seconds: f64 = seconds.parse()?;
        times.push((seconds * 1e6) as u32);
        end = end.max(since.parse::<f64>()? + seconds);
    }
    outcome.per_second = times.len() as f64 / end;
    outcome.latency = Latency::of(times);
    Ok(outcome)
}

/// Milliseconds in the report.
pub fn autocannon(stdout: &str) -> Result<Outcome> {
    let report: Value = serde_json::from_str(stdout)?;
    let us = |name: &str| -> Result<f64> { Ok(number(&report, &format!("/latency/{name}"))? * 1e3) };
    let latency = Latency { p50: us("p50")?, p99: us("p99")?, p999: us("p99_9")? };
    let failed = number(&report, "/errors")? + number(&report, "/timeouts")? + number(&report, "/mismatches")?;
    let mut outcome = Outcome {
        latency,
        per_second: number(&report, "/requests/total")? / number(&report, "/duration")?,
        failed: failed as u64,
        ..Outcome::default()
    };
    for (status, count) in report["statusCodeStats"].as_object().into_iter().flatten() {
        add(&mut outcome, status, count["count"].as_u64().unwrap_or_default());
    }
    Ok(outcome)
}
