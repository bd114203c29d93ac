//! holds.json: traces of one key under one policy with holds, on any store.

use std::{collections::HashMap, time::Duration};

use serde_json::Value;
use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store};
use tollgate::{Algorithm, Check, Key, ManualClock, Policy, policy::HoldSettings};

use super::outcome::{Outcome, expect, id, unknown};

pub(crate) async fn run(file: &Value, clock: &ManualClock, store: &dyn Store) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file["holds"].as_array().unwrap() {
        results.push((id(case), run_case(case, clock, store).await));
    }
    results
}

async fn run_case(case: &Value, clock: &ManualClock, store: &dyn Store) -> Outcome {
    let known = ["id", "title", "algorithm", "limit", "window_us", "hold_ttl_us", "on_expiry", "steps"];
    if let Some(skipped) = unknown(case, &known) {
        return skipped;
    }
    let policy = match policy(case) {
        Ok(policy) => policy,
        Err(outcome) => return outcome,
    };
    let mut made = HashMap::new();
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        clock.set_us(step["at_us"].as_u64().unwrap());
        if let Err(why) = run_step(step, &Key::from(id(case)), &policy, store, &mut made).await {
            return Outcome::Failed(format!("step {index}: {why}"));
        }
    }
    Outcome::Passed
}

fn policy(case: &Value) -> Result<Policy, Outcome> {
    let algorithm = match case["algorithm"].as_str().unwrap() {
        "fixed_window" => Algorithm::FixedWindow,
        "sliding_window_counter" => Algorithm::SlidingWindowCounter,
        // The algorithm of a concurrency limit does not matter, because nothing is ever charged.
        "sliding_window_log" | "concurrency" => Algorithm::SlidingWindowLog,
        "token_bucket" | "gcra" => Algorithm::TokenBucket,
        other => return Err(Outcome::Skipped(format!("algorithm `{other}` is not supported"))),
    };
    let released = match case["on_expiry"].as_str().unwrap() {
        "charge" => false,
        "release" => true,
        other => return Err(Outcome::Skipped(format!("on_expiry `{other}` is not supported"))),
    };
    let time = |name: &str| Duration::from_micros(case[name].as_u64().unwrap());
    let holds = HoldSettings::new().with_ttl(time("hold_ttl_us")).with_unsettled_released(released);
    let policy = match case["algorithm"].as_str() {
        Some("concurrency") => Policy::concurrent("p", number(&case["limit"])),
        _ => Policy::new("p", number(&case["limit"]), time("window_us")),
    };
    policy
        .and_then(|policy| policy.with_algorithm(algorithm).with_holds(holds).validated())
        .map_err(|error| Outcome::Failed(error.to_string()))
}

async fn run_step(
    step: &Value,
    key: &Key,
    policy: &Policy,
    store: &dyn Store,
    made: &mut HashMap<String, Charge>,
) -> Result<(), String> {
    let name = step["hold"].as_str().unwrap_or_default().to_owned();
    let check = match step["op"].as_str().unwrap() {
        "check" => Check::new(key.clone(), policy, number(&step["cost"])),
        "hold" => Check::hold(key.clone(), policy, number(&step["cost"])),
        "settle" => {
            // A hold that was denied was never made, so there is nothing to settle.
            let settlement = match made.get(&name) {
                Some(hold) => answer(store.change_hold(hold, HoldChange::Settle(number(&step["actual"])))).await?,
                None => SettleAnswer::Expired,
            };
            expect("settled", &(settlement == SettleAnswer::Settled), &step["settled"].as_bool().unwrap())?;
            Check::new(key.clone(), policy, 0)
        }
        other => return Err(format!("operation `{other}` is not supported")),
    };
    let verdict = answer(store.check(&check)).await?;
    if let Some(allowed) = step["allowed"].as_bool() {
        expect("allowed", &verdict.allowed, &allowed)?;
    }
    let charge = &check.charges()[0];
    if charge.hold.is_some() && verdict.allowed {
        made.insert(name, charge.clone());
    }
    expect("available", &verdict.outcomes[0].available, &step["available"].as_u64().unwrap())
}

async fn answer<T>(answer: Answer<T>) -> Result<T, String> {
    let result = match answer {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => pending.await,
    };
    result.map_err(|error| error.to_string())
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}
