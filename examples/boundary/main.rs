//! The fixed window and the sliding window log at a window boundary.
//!
//! Run it with `cargo run --release -p examples --example boundary [-- --redis URL] [--svg FILE]`.
//!
//! A client sends a full burst just before a boundary of the fixed window and a second burst just after the boundary.
//! The fixed window allows both bursts, twice the limit within two seconds. The sliding window log allows only the
//! first burst. The example does not sleep: it sets the time through its own [`Clock`].

mod plot;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, process, sync::Arc};

use tollgate::{Algorithm, Limiter, MemoryStore, Policy, RedisStore, clock::Clock};

type Failure = Box<dyn std::error::Error>;

const LIMIT: u64 = 50;
const WINDOW: Duration = Duration::from_secs(10);
/// Time between two requests of a burst.
const STEP: Duration = Duration::from_millis(20);
/// A window boundary in microseconds since the Unix epoch, a multiple of the window.
const BOUNDARY_US: u64 = 1_767_225_610_000_000;

/// A clock that shows the time to which it was last set. Clones share the time.
#[derive(Clone, Debug, Default)]
struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    fn set_us(&self, now_us: u64) {
        self.0.store(now_us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The decisions of one algorithm for both bursts.
struct Run {
    title: &'static str,
    /// For each request, the time in microseconds since the start of the first window, and whether it was allowed.
    requests: Vec<(u64, bool)>,
    /// Retry-after of the first denied request.
    retry_after: Option<Duration>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> process::ExitCode {
    match run().await {
        Ok(()) => process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let (url, svg) = arguments()?;
    let clock = ManualClock::default();
    let limiter = match &url {
        Some(url) => Limiter::new(RedisStore::builder().clock(clock.clone()).open(url)?),
        None => Limiter::new(MemoryStore::new().with_clock(clock.clone())),
    };
    // Each run has a new key, so that no earlier run has charged the key.
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let key = format!("boundary:{}:{nanos}", process::id());

    let policy = Policy::new("boundary", LIMIT, WINDOW)?;
    let mut runs = Vec::new();
    for (title, algorithm) in
        [("fixed window", Algorithm::FixedWindow), ("sliding window log", Algorithm::SlidingWindowLog)]
    {
        runs.push(two_bursts(title, &limiter, &key, &policy.clone().with_algorithm(algorithm), &clock).await?);
    }

    println!(
        "The limit is {LIMIT} units per {WINDOW:?}. {LIMIT} requests arrive just before a window boundary, \
         {LIMIT} just after it:\n"
    );
    for run in &runs {
        let (allowed, sent) = (run.allowed().count(), run.requests.len());
        print!("  {:20}{allowed:4} of {sent} allowed, at most {:3} in any {WINDOW:?}", run.title, run.peak());
        match run.retry_after {
            Some(wait) => println!("; first denial: retry after {wait:?}"),
            None => println!(),
        }
    }
    if let Some(file) = svg {
        fs::write(&file, plot::svg(&runs)?)?;
        println!("\nThe plot is in {file}.");
    }
    Ok(())
}

async fn two_bursts(
    title: &'static str,
    limiter: &Limiter,
    key: &str,
    policy: &Policy,
    clock: &ManualClock,
) -> Result<Run, Failure> {
    let mut run = Run { title, requests: Vec::new(), retry_after: None };
    let start = BOUNDARY_US - micros(STEP) * LIMIT;
    for request in 0..2 * LIMIT {
        let now = start + request * micros(STEP);
        clock.set_us(now);
        let decision = limiter.check(key, policy, 1).await?;
        run.requests.push((now - (BOUNDARY_US - micros(WINDOW)), decision.is_allowed()));
        run.retry_after = run.retry_after.or(decision.retry_after());
    }
    Ok(run)
}

impl Run {
    /// The times of the allowed requests.
    fn allowed(&self) -> impl Iterator<Item = u64> {
        self.requests.iter().filter(|(_, allowed)| *allowed).map(|(at, _)| *at)
    }

    /// Number of requests allowed in the window that ends at `at`.
    fn in_window_at(&self, at: u64) -> usize {
        self.allowed().filter(|&allowed_at| allowed_at <= at && at < allowed_at + micros(WINDOW)).count()
    }

    /// The largest number of requests allowed in any window.
    fn peak(&self) -> usize {
        self.allowed().map(|at| self.in_window_at(at)).max().unwrap_or(0)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Reads `--redis URL` and `--svg FILE`.
fn arguments() -> Result<(Option<String>, Option<String>), String> {
    const USAGE: &str = "Usage: boundary [--redis URL] [--svg FILE]";
    let (mut url, mut svg) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match flag.as_str() {
            "--redis" => url = Some(value),
            "--svg" => svg = Some(value),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok((url, svg))
}
