//! The cases of a file of vectors.

use std::{error::Error, fs, time::Duration};

use serde_json::Value;

use crate::case::{Quota, Situation};
use crate::reports;

pub(crate) fn read(path: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let file: Value = serde_json::from_str(&fs::read_to_string(path)?)?;
    let cases = file["headers"].as_array().ok_or("the file of vectors has no list `headers`")?;
    cases.iter().map(case).collect()
}

fn case(case: &Value) -> Result<Value, Box<dyn Error>> {
    let list = |name: &str| case[name].as_array().ok_or(format!("a vector has no list `{name}`"));
    let quotas: Result<Vec<Quota>, Box<dyn Error>> =
        list("policies")?.iter().zip(list("state")?).map(|(policy, state)| quota(policy, state)).collect();
    let situation = Situation {
        id: case["id"].as_str().ok_or("a vector has no `id`")?.to_owned(),
        allowed: case["outcome"] == "allow",
        now_us: case["now_unix_ms"].as_u64().ok_or("a vector has no `now_unix_ms`")? * 1_000,
        capped_ratio: case["options"]["cap_ratio"] != false,
        all_on_denial: case["options"]["on_deny"] == "all",
    };
    Ok(reports::case(&situation, &quotas?))
}

fn quota(policy: &Value, state: &Value) -> Result<Quota, Box<dyn Error>> {
    let limit = policy["q"].as_u64().ok_or("a policy of a vector has no `q`")?;
    let violated = state["violated"] == true;
    Ok(Quota {
        name: policy["name"].as_str().ok_or("a policy of a vector has no `name`")?.to_owned(),
        limit,
        capacity: limit,
        window: millis(&policy["window_ms"]),
        unit: policy["unit"].as_str().filter(|unit| *unit != "requests").map(str::to_owned),
        partition_key: policy["pk"].as_str().map(|key| key.as_bytes().to_vec()),
        // A quota has no negative count; stores clamp the count to 0.
        remaining: state["remaining"].as_f64().ok_or("a state of a vector has no `remaining`")?.max(0.0) as u64,
        next: millis(&state["next_available_ms"]),
        reset: millis(&state["reset_after_ms"]),
        retry_after: millis(&state["retry_after_ms"]).filter(|_| violated),
        violated,
    })
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_f64().map(|millis| Duration::from_micros((millis * 1e3).round() as u64))
}
