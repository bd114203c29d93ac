//! Random files: none panics, and what is accepted limits as an independent reading of the file says.

mod grammar;
mod oracle;

use std::time::{Instant, UNIX_EPOCH};
use std::{convert::Infallible, fmt::Display};

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use serde_json::Value;
use tokio_test::block_on;
use tollgate::{Decision, GlobalKey, Limiter, MemoryStore, Policy, limits::LimitsConfig};
use tower::{Layer, ServiceExt, service_fn};

use self::{grammar::Form, oracle::Target};
use crate::support::{app::limiter_and_clock, random::Random};

const SHORT: u64 = 100_000;
const LONG: u64 = 10_000_000;

/// The number of accepted files among these.
fn assert_files(seed: u64, count: u64) -> u64 {
    let mut random = Random(seed);
    let shared = Limiter::new(MemoryStore::new()).without_notices().with_local_fallback(MemoryStore::new(), 1);
    let mut accepted = 0;
    for number in 0..count {
        let file = grammar::file(&mut random);
        let Some((limits, tree)) = read(&file) else { continue };
        accepted += 1;
        let context = || format!("seed {seed}, file {number}: {file:?}");
        let targets = oracle::targets(&tree);
        assert!(!targets.is_empty(), "no request is limited: {}", context());
        for target in &targets {
            let decision = send(&limits, &shared, target).1.unwrap_or_else(|| panic!("{target:?}, {}", context()));
            let charged: Vec<(String, u64)> =
                decision.policies().iter().map(|standing| (standing.policy.name().to_owned(), standing.cost)).collect();
            assert_eq!(charged, target.charges, "{target:?}, {}", context());
        }
        if random.one_in(200) {
            let target = random.index(targets.len());
            assert_denies(&limits, &targets[target], &context);
        }
    }
    assert!(accepted > count / 10 && accepted < count * 9 / 10, "one-sided: {accepted} of {count} accepted");
    accepted
}

/// The limits of an accepted file, and the file as a tree of JSON.
fn read(file: &Form) -> Option<(LimitsConfig, Value)> {
    let (limits, tree) = match file {
        Form::Tree(tree) => (text_of(serde_json::from_value(tree.clone())), tree.clone()),
        Form::Json(text) => (text_of(serde_json::from_str(text)), serde_json::from_str(text).ok()?),
        Form::Toml(text) => (text_of(toml::from_str(text)), toml::from_str(text).ok()?),
    };
    match limits {
        Ok(limits) => Some((limits, tree)),
        Err(error) => {
            assert!(!error.is_empty());
            None
        }
    }
}

fn text_of<E: Display>(limits: Result<LimitsConfig, E>) -> Result<LimitsConfig, String> {
    limits.map_err(|error| error.to_string())
}

/// Sends a request to the target.
fn send(limits: &LimitsConfig, limiter: &Limiter, target: &Target) -> (StatusCode, Option<Decision>) {
    let layer = limits.layer(limiter.clone(), GlobalKey).unwrap().with_decision_in_response(true);
    let handler = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
    let request = Request::builder().method(target.method).uri(&target.path).body(Body::empty()).unwrap();
    let Ok(response) = block_on(layer.layer(handler).oneshot(request));
    (response.status(), response.extensions().get::<Decision>().cloned())
}

/// Asserts that requests to the target are denied after exactly as many as the smallest policy has room for, while the
/// clock stands still. Policies with shards may deny earlier, and a concurrency limit has room again after a response.
/// Shadow policies have tests of their own.
fn assert_denies(limits: &LimitsConfig, target: &Target, context: &dyn Fn() -> String) {
    let charged = || target.charges.iter().filter_map(|(name, cost)| Some((limits.policy(name)?, *cost)));
    if target.is_shadow || charged().any(|(policy, _)| policy.is_shadow()) {
        return;
    }
    let has_windows = |policy: &Policy| policy.window().is_some() || policy.calendar_window(UNIX_EPOCH).is_some();
    let policies = charged().filter(|(policy, cost)| *cost > 0 && has_windows(policy));
    let policies = policies.map(|(policy, cost)| (policy.burst().unwrap_or(policy.limit()) / cost, policy.shards()));
    let policies: Vec<(u64, u32)> = policies.collect();
    let Some(room) = policies.iter().map(|(room, _)| *room).min().filter(|room| *room <= 100) else { return };
    let (limiter, _clock) = limiter_and_clock();
    let limiter = limiter.without_notices().with_local_fallback(MemoryStore::new(), 1);
    let allowed = (0..=room).take_while(|_| send(limits, &limiter, target).0 == StatusCode::OK).count();
    let is_divided = policies.iter().any(|(_, shards)| *shards > 1);
    let expected = if is_divided { 1..=room as usize } else { room as usize..=room as usize };
    assert!(expected.contains(&allowed), "{allowed} allowed, room for {room}: {target:?}, {}", context());
}

#[test]
fn random_files_never_panic_and_never_lift_a_limit() {
    // A fifth, except in `tests/run --all`.
    let is_thorough = std::env::var_os("TOLLGATE_TESTS").is_some_and(|tests| tests == "all");
    assert_files(1, if is_thorough { SHORT } else { SHORT / 5 });
}

#[test]
#[ignore = "ten million files: tests/run --long"]
fn long_ten_million_files_never_panic_and_never_lift_a_limit() {
    let start = Instant::now();
    // One worker for each core.
    let workers = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let accepted: u64 = std::thread::scope(|scope| {
        let run = |worker| scope.spawn(move || assert_files(1_000 + worker, LONG / workers));
        let threads: Vec<_> = (0..workers).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{LONG} files, {accepted} of them accepted, in {:.0?}", start.elapsed());
}
