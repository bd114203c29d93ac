//! A budget of tokens for a model. The cost of an answer is known only when the model has answered.
//!
//! Run it with `cargo run --release -p examples --example tokens [-- --redis URL]`.
//!
//! A tenant may use 1 000 tokens a minute. Each job holds an estimate before it calls the model, and settles with the
//! usage that the model reports: what was held beyond it is free at once, and an excess is charged too, so that later
//! jobs wait for it. A job that fails gives its tokens back. The sums are printed after each step.

use std::{process::ExitCode, time::Duration};

use tokio::time::sleep;
use tollgate::{Limiter, MemoryStore, Policy, RedisStore, limiter::HoldAnswer, policy::HoldSettings};

type Failure = Box<dyn std::error::Error>;

/// The key: all jobs of the tenant spend from one budget.
const TENANT: &str = "tenant:3";

/// A prompt for the model.
struct Job {
    name: &'static str,
    /// The most tokens that the answer is expected to need.
    estimate: u64,
    /// The tokens that the answer turns out to need; `None` if the model fails.
    usage: Option<u64>,
}

const JOBS: [Job; 6] = [
    Job { name: "summary", estimate: 400, usage: Some(150) },
    Job { name: "translation", estimate: 500, usage: Some(480) },
    Job { name: "broken prompt", estimate: 300, usage: None },
    Job { name: "poem", estimate: 100, usage: Some(330) },
    Job { name: "report", estimate: 200, usage: Some(200) },
    Job { name: "headline", estimate: 40, usage: Some(12) },
];

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
    let limiter = match redis_url()? {
        Some(url) => Limiter::new(RedisStore::open(&url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    // A job that is killed is charged in full after half a minute, because the model may have done its work.
    let tokens = Policy::per_minute("tokens", 1_000)?.with_holds(HoldSettings::new().with_ttl(Duration::from_secs(30)));
    limiter.reset(TENANT, &tokens).await?;

    println!("{TENANT} may use {} tokens a minute.\n", tokens.limit());
    println!("{:<14} {:>8} {:>8} {:>8} {:>8}", "job", "estimate", "used", "charged", "left");
    let mut charged = 0;
    for job in JOBS {
        let hold = match limiter.hold(TENANT, &tokens, job.estimate).await? {
            HoldAnswer::Open(hold) => hold,
            HoldAnswer::Denied(decision) => {
                let wait = decision.retry_after().unwrap_or_default();
                println!(
                    "{:<14} {:>8} denied: {} tokens are left, try again in {wait:.0?}",
                    job.name,
                    job.estimate,
                    decision.available().unwrap_or_default()
                );
                continue;
            }
        };
        let settled = match call_model(&job).await {
            Ok(used) => {
                hold.settle(used).await?;
                used
            }
            Err(_) => {
                hold.release().await?;
                0
            }
        };
        charged += settled;
        let left = limiter.peek(TENANT, &tokens).await?.available().unwrap_or_default();
        let used = job.usage.map_or("failed".to_owned(), |used| used.to_string());
        println!("{:<14} {:>8} {used:>8} {settled:>8} {left:>8}", job.name, job.estimate);
        assert_eq!(left, tokens.limit().saturating_sub(charged), "what is charged and what is left make the limit");
    }
    println!("\nCharged: {charged} of {} tokens.", tokens.limit());
    Ok(())
}

/// Stands in for a model, which reports its usage with the answer.
async fn call_model(job: &Job) -> Result<u64, &'static str> {
    sleep(Duration::from_millis(20)).await;
    job.usage.ok_or("the model does not understand the prompt")
}

/// Reads `--redis URL`.
fn redis_url() -> Result<Option<String>, &'static str> {
    const USAGE: &str = "Usage: tokens [--redis URL]";
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, ..) => Ok(None),
        (Some("--redis"), Some(url), None) => Ok(Some(url)),
        _ => Err(USAGE),
    }
}
