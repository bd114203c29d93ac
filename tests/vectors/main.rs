//! Runs the JSON vectors in `TOLLGATE_VECTORS` (default `tests/data/vectors`) and prints a line of results
//! for each file.
#![allow(clippy::unwrap_used)]

mod algorithms;
mod by_hand;
mod calendar;
mod client_ip;
mod config;
mod grpc;
mod headers;
mod holds;
mod outcome;
mod problem;

use std::{fs, path::PathBuf, process::ExitCode};

use serde_json::Value;
use tollgate::{Limiter, ManualClock, MemoryStore};

use crate::outcome::{Outcome, id, report};

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
            "algorithms.json" => {
                // `tests/server` runs the same cases on Redis.
                let clock = ManualClock::default();
                let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
                algorithms::run(&file, &clock, &limiter).await
            }
            "by_hand.json" => {
                // `tests/server` runs the same cases on Redis.
                let clock = ManualClock::default();
                by_hand::run(&file, &clock, &MemoryStore::new().with_clock(clock.clone())).await
            }
            "calendar.json" => {
                // `tests/server` runs the same cases on Redis.
                let clock = ManualClock::default();
                calendar::run(&file, &clock, &MemoryStore::new().with_clock(clock.clone())).await
            }
            "client_ip.json" => client_ip::run(&file).await,
            "config.json" => config::run(&file).await,
            "grpc.json" => grpc::run(&file).await,
            "headers.json" => headers::run(&file),
            "holds.json" => {
                // `tests/server` runs the same cases on Redis.
                let clock = ManualClock::default();
                holds::run(&file, &clock, &MemoryStore::new().with_clock(clock.clone())).await
            }
            "problem.json" => problem::run(&file).await,
            _ => skip_all(&file),
        };
        failures += report(&name, &results);
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Skips all cases of a file that no module runs.
fn skip_all(file: &Value) -> Vec<(String, Outcome)> {
    let sections = file.as_object().unwrap().values().filter_map(Value::as_array);
    let skipped = |case: &Value| (id(case), Outcome::Skipped("no module runs this file".into()));
    sections.flatten().map(skipped).collect()
}
