//! Workers that stay within an upstream's quota, together with the workers of other processes.
//!
//! Run it in several terminals at once:
//!
//! ```text
//! cargo run --release -p examples --example outbound -- --redis redis://127.0.0.1:6379 --workers 8 --rate 50/s \
//!   --seconds 10
//! ```
//!
//! Each worker waits for its turn with `Limiter::acquire` and then calls the upstream. The first process starts the
//! upstream, which enforces the rate by itself and refuses further calls with 429. Without `--redis`, the process
//! counts alone. At the end, each process prints one line.

mod upstream;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, process::ExitCode, sync::Arc};

use tokio::task::JoinSet;
use tollgate::observe::{Event, Observer};
use tollgate::{Algorithm, FailurePolicy, Limiter, MemoryStore, Policy, RedisStore, decision::Source};

use crate::upstream::{Answer, Rate, Upstream};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: outbound [--redis URL] [--workers N] [--rate 50/s] [--seconds S] [--upstream ADDRESS]";

const NAMES: [&str; 5] = ["--redis", "--workers", "--rate", "--seconds", "--upstream"];

/// The longest time by which two calls may differ in their delay on the way to the upstream. Calls that leave evenly
/// arrive unevenly, so the workers' window is longer than the upstream's by this time.
const LONGEST_DELAY: Duration = Duration::from_millis(100);

/// The longest wait of a worker for one call.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The pause of a worker after the store has failed.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

struct Options {
    redis: Option<String>,
    workers: usize,
    rate: Rate,
    run_for: Duration,
    upstream: String,
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut options = Self {
            redis: None,
            workers: 8,
            rate: "50/s".parse()?,
            run_for: Duration::from_secs(10),
            upstream: "127.0.0.1:4750".to_owned(),
        };
        let mut arguments = env::args().skip(1);
        while let Some(name) = arguments.next() {
            if !NAMES.contains(&name.as_str()) {
                return Err(USAGE.into());
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value; {USAGE}"))?;
            match name.as_str() {
                "--redis" => options.redis = Some(value),
                "--workers" => options.workers = value.parse()?,
                "--rate" => options.rate = value.parse()?,
                "--seconds" => options.run_for = Duration::try_from_secs_f64(value.parse()?)?,
                _ => options.upstream = value,
            }
        }
        if options.workers == 0 {
            return Err("--workers needs at least 1".into());
        }
        Ok(options)
    }
}

/// Counts the calls of Redis.
#[derive(Clone, Default)]
struct RedisCalls(Arc<AtomicU64>);

impl Observer for RedisCalls {
    fn on_event(&self, event: &Event<'_>) {
        if event.name() == "batch" {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What one worker has done.
#[derive(Default)]
struct Tally {
    admitted: u64,
    refusals: u64,
    longest_wait: Duration,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let Options { redis, workers, rate, run_for, upstream } = Options::parse()?;
    let calls = RedisCalls::default();
    let limiter = match redis {
        Some(url) => Limiter::new(RedisStore::open(&url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    let limiter = limiter.with_observer(calls.clone());
    limiter.ready().await?;
    let before = calls.0.load(Ordering::Relaxed);

    // A bucket of one unit: calls leave one by one, at an even rate.
    let policy = Policy::new("upstream", rate.limit, rate.window + LONGEST_DELAY)?;
    let policy = policy.with_algorithm(Algorithm::TokenBucket).with_burst(1);
    let upstream = Upstream::new(upstream, rate)?;

    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..workers {
        tasks.spawn(work(limiter.clone(), policy.clone(), upstream.clone(), start + run_for));
    }
    let mut total = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        let tally = tally??;
        total.admitted += tally.admitted;
        total.refusals += tally.refusals;
        total.longest_wait = total.longest_wait.max(tally.longest_wait);
    }

    let seconds = start.elapsed().as_secs_f64();
    let redis_calls = calls.0.load(Ordering::Relaxed) - before;
    println!(
        "admitted={} seconds={seconds:.2} rate={:.2} redis_calls_per_admission={:.2} upstream_refusals={} \
         longest_wait_ms={}",
        total.admitted,
        total.admitted as f64 / seconds,
        redis_calls as f64 / total.admitted.max(1) as f64,
        total.refusals,
        total.longest_wait.as_millis(),
    );
    Ok(())
}

/// Calls the upstream until `end`, whenever the quota admits a call.
async fn work(limiter: Limiter, policy: Policy, upstream: Upstream, end: Instant) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let asked = Instant::now();
        let result = limiter.acquire("account-1", &policy, 1).within(left.min(MAX_WAIT)).await;
        // A quota that is overspent cannot be restored, so no call is made while the store cannot answer.
        let decision = FailurePolicy::Closed.resolve(result);
        if !decision.is_allowed() {
            if decision.source() == Source::Closed {
                tokio::time::sleep(AFTER_FAILURE).await;
                continue;
            }
            // The turn of this worker comes after the end.
            break;
        }
        tally.longest_wait = tally.longest_wait.max(asked.elapsed());
        tally.admitted += 1;
        if let Answer::Refused = upstream.call().await? {
            tally.refusals += 1;
        }
    }
    Ok(tally)
}
