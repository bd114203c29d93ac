//! Runs the JSON vectors in `TOLLGATE_VECTORS` (default `tests/data/vectors`), a line of result for each file.
#![allow(clippy::unwrap_used)]

mod algorithms;
mod grpc;
mod headers;
mod problem;
#[path = "../support/mod.rs"]
mod support;

use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode};

use serde_json::Value;

/// What became of one case. A kind of case that the crate does not have is skipped, by name.
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Compares, with words for the failure.
fn expect(what: &str, actual: &impl std::fmt::Debug, expected: &impl std::fmt::Debug) -> Result<(), String> {
    let (actual, expected) = (format!("{actual:?}"), format!("{expected:?}"));
    if actual == expected { Ok(()) } else { Err(format!("{what}: {actual}, expected {expected}")) }
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Self {
        result.map_or_else(Self::Failed, |()| Self::Passed)
    }
}

/// The first field that is not among the known ones, as a reason to skip.
fn unknown(object: &Value, known: &[&str]) -> Option<Outcome> {
    let name = object.as_object()?.keys().find(|name| !known.contains(&name.as_str()))?;
    Some(Outcome::Skipped(format!("`{name}` is not there yet")))
}

#[tokio::main]
async fn main() -> ExitCode {
    let directory = std::env::var_os("TOLLGATE_VECTORS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/vectors"), PathBuf::from);
    let mut files: Vec<PathBuf> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no vectors in {}", directory.display());

    let mut failures = 0;
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let results = match name.as_str() {
            "algorithms.json" => algorithms::run(&file).await,
            "grpc.json" => grpc::run(&file).await,
            "headers.json" => headers::run(&file),
            "problem.json" => problem::run(&file).await,
            _ => skip_all(&file),
        };
        failures += report(&name, &results);
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(name: &str, results: &[(String, Outcome)]) -> usize {
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

/// A file about something that the crate does not do yet.
fn skip_all(file: &Value) -> Vec<(String, Outcome)> {
    let sections = file.as_object().unwrap().values().filter_map(Value::as_array);
    let skipped = |case: &Value| (id(case), Outcome::Skipped("this file's subject is not there yet".into()));
    sections.flatten().map(skipped).collect()
}

fn id(case: &Value) -> String {
    let name = case["id"].as_str().or(case["name"].as_str()).or(case["content-type"].as_str());
    name.unwrap_or("?").to_owned()
}
