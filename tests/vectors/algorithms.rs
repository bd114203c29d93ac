//! algorithms.json: traces of one key under one policy, on any store.

use std::time::Duration;

use serde_json::Value;
use tollgate::{Algorithm, Limiter, ManualClock, Policy};

use super::outcome::{Outcome, expect, id, unknown};

pub(crate) async fn run(file: &Value, clock: &ManualClock, limiter: &Limiter) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file["algorithms"].as_array().unwrap() {
        results.push((id(case), run_case(case, clock, limiter).await));
    }
    results
}

async fn run_case(case: &Value, clock: &ManualClock, limiter: &Limiter) -> Outcome {
    let known = ["id", "title", "algorithm", "limit", "window_us", "steps", "count_rejected", "resolution_us", "burst"];
    if let Some(skipped) = unknown(case, &known) {
        return skipped;
    }
    let policy = match policy(case) {
        Ok(policy) => policy,
        Err(outcome) => return outcome,
    };
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        if let Err(why) = run_step(case, step, clock, limiter, &policy).await {
            return Outcome::Failed(format!("step {index}: {why}"));
        }
    }
    Outcome::Passed
}

fn policy(case: &Value) -> Result<Policy, Outcome> {
    let algorithm = match case["algorithm"].as_str().unwrap() {
        "fixed_window" => Algorithm::FixedWindow,
        "sliding_window_counter" => Algorithm::SlidingWindowCounter,
        "sliding_window_log" => Algorithm::SlidingWindowLog,
        "token_bucket" | "gcra" => Algorithm::TokenBucket,
        other => return Err(Outcome::Skipped(format!("algorithm `{other}` is not supported"))),
    };
    let number = |name: &str| case[name].as_u64();
    let limit = number("limit").unwrap();
    let window = Duration::from_micros(number("window_us").unwrap());
    let failed = |error: tollgate::ConfigError| Outcome::Failed(error.to_string());
    let mut policy = Policy::new("p", limit, window).map_err(failed)?.with_algorithm(algorithm);
    if let Some(resolution) = number("resolution_us") {
        policy = policy.with_resolution(Duration::from_micros(resolution)).validated().map_err(failed)?;
    }
    if let Some(burst) = number("burst") {
        policy = policy.with_burst(burst).validated().map_err(failed)?;
    }
    Ok(policy.with_denials_counted(case["count_rejected"].as_bool().unwrap_or(false)))
}

async fn run_step(
    case: &Value,
    step: &Value,
    clock: &ManualClock,
    limiter: &Limiter,
    policy: &Policy,
) -> Result<(), String> {
    clock.set_us(step["at_us"].as_u64().unwrap());
    let cost = step["cost"].as_u64().unwrap();
    let decision = limiter.check(id(case), policy, cost).await.map_err(|error| error.to_string())?;
    expect("allowed", &decision.is_allowed(), &step["allowed"].as_bool().unwrap())?;
    expect("available", &decision.available().unwrap(), &step["available"].as_u64().unwrap())?;
    let retry = decision.retry_after().map(|wait| u64::try_from(wait.as_micros()).unwrap());
    let expected = step["retry_after_us"].as_u64();
    // The file allows a difference of 1 us for the sliding window counter.
    let tolerance = u64::from(policy.algorithm() == Algorithm::SlidingWindowCounter);
    match (retry, expected) {
        (Some(retry), Some(expected)) if retry.abs_diff(expected) <= tolerance => Ok(()),
        _ => expect("retry_after_us", &retry, &expected),
    }
}
