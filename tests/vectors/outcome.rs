//! The outcome of a vector case, and the report on a file.

use std::collections::BTreeMap;

use serde_json::Value;

/// The outcome of one case. A case with an unknown field is skipped, and the report names the field.
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Compares the `Debug` output. The error names `what` and both values.
pub(crate) fn expect(what: &str, actual: &impl std::fmt::Debug, expected: &impl std::fmt::Debug) -> Result<(), String> {
    let (actual, expected) = (format!("{actual:?}"), format!("{expected:?}"));
    if actual == expected { Ok(()) } else { Err(format!("{what}: {actual}, expected {expected}")) }
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }
}

/// A reason to skip the case if `object` has a field that is not in `known`.
pub(crate) fn unknown(object: &Value, known: &[&str]) -> Option<Outcome> {
    let name = object.as_object()?.keys().find(|name| !known.contains(&name.as_str()))?;
    Some(Outcome::Skipped(format!("`{name}` is not supported")))
}

/// Prints the report on a file, and returns the number of failed cases.
pub(crate) fn report(name: &str, results: &[(String, Outcome)]) -> usize {
    let (mut passed, mut failed) = (0, 0);
    let mut skipped: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, outcome) in results {
        match outcome {
            Outcome::Passed => passed += 1,
            Outcome::Failed(why) => {
                failed += 1;
                println!("{name} {id} FAILED: {why}");
            }
            Outcome::Skipped(why) => skipped.entry(why).or_default().push(id),
        }
    }
    for (why, ids) in &skipped {
        println!("{name} skipped, {why}: {}", ids.join(" "));
    }
    let skipped: usize = skipped.values().map(Vec::len).sum();
    println!("{name}: {passed} passed, {failed} failed, {skipped} skipped");
    failed
}

pub(crate) fn id(case: &Value) -> String {
    let name = case["id"].as_str().or(case["name"].as_str()).or(case["content-type"].as_str());
    name.unwrap_or("?").to_owned()
}
