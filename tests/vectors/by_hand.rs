//! by_hand.json: traces of one key under one policy with credits, records, bans, peeks at costs and charges of as much
//! as fits, on any store.

use std::time::Duration;

use serde_json::Value;
use tollgate::store::{Answer, CountChange, Store, Verdict};
use tollgate::{Algorithm, Check, Key, ManualClock, Policy};

use super::outcome::{Outcome, expect, id, unknown};

pub(crate) async fn run(file: &Value, clock: &ManualClock, store: &dyn Store) -> Vec<(String, Outcome)> {
    let mut results = Vec::new();
    for case in file["by_hand"].as_array().unwrap() {
        results.push((id(case), run_case(case, clock, store).await));
    }
    results
}

async fn run_case(case: &Value, clock: &ManualClock, store: &dyn Store) -> Outcome {
    let known = ["id", "title", "algorithm", "limit", "window_us", "burst", "ban_after", "steps"];
    if let Some(skipped) = unknown(case, &known) {
        return skipped;
    }
    let policy = match policy(case) {
        Ok(policy) => policy,
        Err(outcome) => return outcome,
    };
    for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        clock.set_us(step["at_us"].as_u64().unwrap());
        if let Err(why) = run_step(step, &Key::from(id(case)), &policy, store).await {
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
        "token_bucket" => Algorithm::TokenBucket,
        other => return Err(Outcome::Skipped(format!("algorithm `{other}` is not supported"))),
    };
    let time = |value: &Value| Duration::from_micros(number(value));
    let failed = |error: tollgate::ConfigError| Outcome::Failed(error.to_string());
    let policy = Policy::new("p", number(&case["limit"]), time(&case["window_us"])).map_err(failed)?;
    let mut policy = policy.with_algorithm(algorithm);
    if let Some(burst) = case["burst"].as_u64() {
        policy = policy.with_burst(burst);
    }
    if let Some(denials) = case["ban_after"]["denials"].as_u64() {
        policy = policy.ban_after(denials as u32, time(&case["ban_after"]["for_us"]));
        if case["ban_after"].get("growing_to_us").is_some() {
            policy = policy.growing_to(time(&case["ban_after"]["growing_to_us"]));
        }
    }
    policy.validated().map_err(failed)
}

async fn run_step(step: &Value, key: &Key, policy: &Policy, store: &dyn Store) -> Result<(), String> {
    let check = |name: &str| Check::new(key.clone(), policy, number(&step[name]));
    let change = |change: CountChange| store.change_count(key, policy, change);
    let units = || number(&step["units"]);
    match step["op"].as_str().unwrap() {
        "check" => judge(step, &answer(store.check(&check("cost"))).await?)?,
        "peek" => judge(step, &answer(store.peek(&check("cost"))).await?)?,
        "up_to" => {
            let (verdict, charged) = answer(store.charge_up_to(&check("units").charges()[0])).await?;
            expect("charged", &charged, &number(&step["charged"]))?;
            judge(step, &verdict)?;
        }
        "record" => expect("recorded", &answer(change(CountChange::Record(units()))).await?, &units())?,
        "credit" => {
            let credited = answer(change(CountChange::Credit(units()))).await?;
            expect("credited", &credited, &number(&step["credited"]))?;
        }
        "ban" => {
            let duration = Duration::from_micros(number(&step["for_us"]));
            answer(change(CountChange::Ban(duration))).await?;
        }
        "unban" => {
            let ended = answer(change(CountChange::Unban)).await? > 0;
            expect("ended", &ended, &step["ended"].as_bool().unwrap())?;
        }
        other => return Err(format!("operation `{other}` is not supported")),
    }
    let after = answer(store.check(&Check::new(key.clone(), policy, 0))).await?.outcomes[0];
    expect("available", &after.available, &number(&step["available"]))?;
    expect("ban_us", &after.ban_us, &number(&step["ban_us"]))
}

fn judge(step: &Value, verdict: &Verdict) -> Result<(), String> {
    expect("allowed", &verdict.allowed, &step["allowed"].as_bool().unwrap())?;
    expect("retry_after_us", &verdict.outcomes[0].retry_after_us, &step["retry_after_us"].as_u64())
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
