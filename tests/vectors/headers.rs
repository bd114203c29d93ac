//! headers.json: rendering in every style, policy names, merging into existing fields.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tollgate::headers::{HeaderFields, HeaderWriter, QuotaReport};
use tollgate::{HeaderStyle, Policy, http};

use crate::outcome::{Outcome, expect, id, unknown};

const COMMON: [&str; 2] = ["retry-after", "cache-control"];

pub(crate) fn run(file: &Value) -> Vec<(String, Outcome)> {
    let section = |name: &str| file[name].as_array().cloned().unwrap_or_default();
    let mut results = Vec::new();
    results.extend(section("headers").iter().map(|case| (id(case), render(case))));
    results.extend(section("policy_names").iter().map(|case| (format!("name {:?}", id(case)), policy_name(case))));
    results.extend(section("combine").iter().map(|case| (id(case), combine(case))));
    results
}

fn render(case: &Value) -> Outcome {
    let policies = case["policies"].as_array().unwrap();
    let skipped =
        policies.iter().find_map(|policy| unknown(policy, &["name", "q", "window_ms", "unit", "pk", "pk_hex"]));
    if let Some(skipped) = skipped.or_else(|| unknown(&case["options"], &["cap_ratio", "on_deny", "cost"])) {
        return skipped;
    }
    let states = case["state"].as_array().unwrap();
    let keys: Vec<Option<Vec<u8>>> = policies.iter().map(partition_key).collect();
    let quotas: Vec<QuotaReport<'_>> = policies
        .iter()
        .zip(states)
        .zip(&keys)
        .map(|((policy, state), key)| quota(policy, state, key.as_deref()))
        .collect();
    for (name, expected) in case["expected"].as_object().unwrap() {
        let Some(style) = style(name) else {
            if name == "common" {
                continue;
            }
            return Outcome::Skipped(format!("style `{name}` is not supported"));
        };
        let mut expected = strings(expected);
        expected.extend(strings(&case["expected"]["common"]));
        if let Err(why) = expect(name, &written(case, style, &quotas), &expected) {
            return Outcome::Failed(why);
        }
    }
    Outcome::Passed
}

/// The partition key, which a case gives as text or as hexadecimal digits.
fn partition_key(policy: &Value) -> Option<Vec<u8>> {
    let text = policy["pk"].as_str().map(|text| text.as_bytes().to_vec());
    text.or_else(|| {
        let digits = policy["pk_hex"].as_str()?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        Some(digits.chunks(2).map(byte).collect())
    })
}

fn quota<'a>(policy: &'a Value, state: &Value, partition_key: Option<&'a [u8]>) -> QuotaReport<'a> {
    let millis = |value: &Value| value.as_f64().map(|millis| Duration::from_nanos((millis * 1e6).round() as u64));
    // A quota has no negative count; stores clamp the count to 0.
    let remaining = u64::try_from(state["remaining"].as_f64().unwrap().floor().max(0.0) as i64).unwrap();
    let quota = QuotaReport::new(policy["name"].as_str().unwrap(), policy["q"].as_u64().unwrap(), remaining)
        .with_window(millis(&policy["window_ms"]))
        .with_unit(policy["unit"].as_str().filter(|unit| *unit != "requests"))
        .with_partition_key(partition_key)
        .with_waits(millis(&state["next_available_ms"]), millis(&state["reset_after_ms"]));
    if state["violated"].as_bool().unwrap() { quota.denied(millis(&state["retry_after_ms"])) } else { quota }
}

fn written(case: &Value, style: HeaderStyle, quotas: &[QuotaReport<'_>]) -> BTreeMap<String, String> {
    let options = &case["options"];
    let writer = HeaderWriter::new(style)
        .with_capped_ratio(options["cap_ratio"].as_bool().unwrap_or(true))
        .with_all_policies_on_denial(options["on_deny"] == "all");
    let now = UNIX_EPOCH + Duration::from_millis(case["now_unix_ms"].as_u64().unwrap());
    let mut headers = HeaderMap::new();
    writer.write_quotas(quotas, case["outcome"] == "allow", now).apply(&mut headers);
    headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
}

fn policy_name(case: &Value) -> Outcome {
    let expected = case["valid_sf_string"] == true && case["also_valid_sf_token"] == true;
    expect("accepted", &Policy::per_second(case["name"].as_str().unwrap(), 1).is_ok(), &expected).into()
}

fn combine(case: &Value) -> Outcome {
    let name = case["style"].as_str().unwrap();
    let Some(style) = style(name).or((name == "any").then_some(HeaderStyle::Draft11)) else {
        return Outcome::Skipped(format!("style `{name}` is not supported"));
    };
    let mut headers = HeaderMap::new();
    for (name, lines) in case["existing"].as_object().unwrap() {
        for line in lines.as_array().unwrap() {
            headers.append(header_name(name), HeaderValue::from_str(line.as_str().unwrap()).unwrap());
        }
    }
    let mut fields = HeaderFields::new(style);
    for (name, value) in strings(&case["ours"]) {
        fields.push(header_name(&name), HeaderValue::from_str(&value).unwrap());
    }
    fields.apply(&mut headers);
    for (name, lines) in case["expected_lines"].as_object().unwrap() {
        let actual: Vec<&str> = headers.get_all(name).iter().map(|line| line.to_str().unwrap()).collect();
        let expected: Vec<&str> = lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        // A list may be in one line or in several.
        if let Err(why) = expect(name, &actual.join(", "), &expected.join(", ")) {
            return Outcome::Failed(why);
        }
        if COMMON.contains(&name.as_str()) && actual.len() != 1 {
            return Outcome::Failed(format!("{name} has {} lines", actual.len()));
        }
    }
    Outcome::Passed
}

fn style(name: &str) -> Option<HeaderStyle> {
    Some(match name {
        "draft-03" => HeaderStyle::Draft03,
        "draft-06" => HeaderStyle::Draft06,
        "draft-07" => HeaderStyle::Draft07,
        "draft-11" => HeaderStyle::Draft11,
        "envoy-compat" => HeaderStyle::EnvoyCompat,
        "openai" => HeaderStyle::OpenAi,
        "tower-governor-compat" => HeaderStyle::TowerGovernorCompat,
        "x-ratelimit" | "x-ratelimit-delta" => HeaderStyle::XRateLimitDelta,
        "x-ratelimit-epoch" => HeaderStyle::XRateLimitEpoch,
        _ => return None,
    })
}

fn header_name(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).unwrap()
}

fn strings(object: &Value) -> BTreeMap<String, String> {
    let pairs = object.as_object().into_iter().flatten();
    pairs.map(|(name, value)| (name.to_lowercase(), value.as_str().unwrap().to_owned())).collect()
}
