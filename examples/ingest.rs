//! A quota shared by eight jobs, without HTTP.
//!
//! Run it with `cargo run --release -p examples --example ingest [-- --redis URL [--reset]]`.
//!
//! An upstream API grants 9 500 units a day. Eight regional jobs spend these units concurrently, through clones of one
//! `Limiter`. With Redis, jobs on several machines can share the quota. A list call costs 1 unit; its failure policy is
//! open, so the call is made while the store cannot answer. A search call costs 100 units; its failure policy is
//! closed. A denied job stops and reports when to retry.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::{task::JoinSet, time::sleep};
use tollgate::{Decision, FailurePolicy, Limiter, MemoryStore, Policy, RedisStore, decision::Source};

type Failure = Box<dyn std::error::Error>;

/// The key: all jobs spend from the quota of one upstream account.
const ACCOUNT: &str = "upstream:account-1";
const REGIONS: [&str; 8] = ["africa", "arctic", "asia", "europe", "india", "latam", "oceania", "us"];

/// Searches per job. All jobs together need 8 * 12 * (100 + 4) = 9 984 units, more than the quota.
const SEARCHES: u64 = 12;
/// List calls after each search.
const PAGES: u64 = 4;

/// A kind of upstream call.
#[derive(Clone, Copy)]
struct Call {
    cost: u64,
    /// Whether the call is made while the store cannot answer.
    failure_policy: FailurePolicy,
}

const LIST: Call = Call { cost: 1, failure_policy: FailurePolicy::Open };
const SEARCH: Call = Call { cost: 100, failure_policy: FailurePolicy::Closed };

/// The result of one job.
#[derive(Default)]
struct JobReport {
    region: &'static str,
    searches: u64,
    lists: u64,
    /// Units charged by the store.
    units: u64,
    /// Calls made while the store could not answer.
    unchecked: u64,
    /// Calls not made because the store could not answer.
    postponed: u64,
    out_of_quota: Option<OutOfQuota>,
}

/// The cost of a denied call, and the time until that cost fits.
struct OutOfQuota {
    cost: u64,
    retry_after: Duration,
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
    let (url, reset) = arguments()?;
    let limiter = match &url {
        Some(url) => Limiter::new(RedisStore::open(url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    let quota = Policy::per_day("upstream", 9_500)?;
    if reset {
        limiter.reset(ACCOUNT, &quota).await?;
    }

    println!(
        "The quota is {} units a day, shared by {} jobs. {}.\n",
        quota.limit(),
        REGIONS.len(),
        left(&limiter, &quota).await
    );
    let start = Instant::now();
    let mut jobs = JoinSet::new();
    for region in REGIONS {
        jobs.spawn(work(limiter.clone(), quota.clone(), region));
    }
    let mut reports = jobs.join_all().await;
    reports.sort_by_key(|report| report.region);
    print_summary(&reports);

    let took = start.elapsed();
    println!("\nDone in {took:.1?}. {}.", left(&limiter, &quota).await);
    let spent: u64 = reports.iter().map(|report| report.units).sum();
    assert!(spent <= quota.limit(), "{spent} units were charged, the quota is {}", quota.limit());
    Ok(())
}

/// Runs the calls of one region until all are made or one is denied.
async fn work(limiter: Limiter, quota: Policy, region: &'static str) -> JobReport {
    let mut report = JobReport { region, ..JobReport::default() };
    for _ in 0..SEARCHES {
        let calls = std::iter::once(SEARCH).chain(std::iter::repeat_n(LIST, PAGES as usize));
        for call in calls {
            let result = limiter.check(ACCOUNT, &quota, call.cost).await;
            let decision = call.failure_policy.resolve(result);
            if decision.is_allowed() {
                call_upstream().await;
            }
            report.record(call, &decision);
            if report.out_of_quota.is_some() {
                return report;
            }
        }
    }
    report
}

/// Stands in for the upstream call.
async fn call_upstream() {
    sleep(Duration::from_millis(2)).await;
}

impl JobReport {
    /// Adds the outcome of one call.
    fn record(&mut self, call: Call, decision: &Decision) {
        if !decision.is_allowed() {
            // A denial has a retry-after. A refusal without a verdict of the store has none.
            match decision.retry_after() {
                Some(retry_after) => self.out_of_quota = Some(OutOfQuota { cost: call.cost, retry_after }),
                None => self.postponed += 1,
            }
            return;
        }
        match call.cost {
            1 => self.lists += 1,
            _ => self.searches += 1,
        }
        match decision.source() {
            Source::Store => self.units += call.cost,
            _ => self.unchecked += 1,
        }
    }
}

fn print_summary(reports: &[JobReport]) {
    println!("{:10}{:>10}{:>8}{:>8}", "job", "searches", "lists", "units");
    for report in reports {
        let end = match &report.out_of_quota {
            Some(OutOfQuota { cost, retry_after }) => {
                format!("out of quota: a call of cost {cost} fits in {}", format_wait(*retry_after))
            }
            None if report.postponed > 0 => {
                format!(
                    "store down: {} searches postponed, {} lists made without a check",
                    report.postponed, report.unchecked
                )
            }
            None => "done".to_owned(),
        };
        println!("{:10}{:10}{:8}{:8}   {end}", report.region, report.searches, report.lists, report.units);
    }
    let sum = |of: fn(&JobReport) -> u64| reports.iter().map(of).sum::<u64>();
    let (searches, lists, units) = (sum(|r| r.searches), sum(|r| r.lists), sum(|r| r.units));
    println!("{:10}{searches:10}{lists:8}{units:8}   total of this run", "all");
}

/// Describes the remaining quota, without a charge.
async fn left(limiter: &Limiter, quota: &Policy) -> String {
    match limiter.peek(ACCOUNT, quota).await {
        Ok(decision) => format!("Left: {}", decision.available().unwrap_or_default()),
        Err(error) => format!("Left: unknown ({error})"),
    }
}

/// Formats a wait, rounded up to the second so that a retry is never too early.
fn format_wait(wait: Duration) -> String {
    let seconds = wait.as_millis().div_ceil(1_000);
    format!("{}h {:02}m {:02}s", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Reads `--redis URL` and `--reset`.
fn arguments() -> Result<(Option<String>, bool), String> {
    const USAGE: &str = "Usage: ingest [--redis URL] [--reset]";
    let (mut url, mut reset) = (None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--redis" => url = Some(arguments.next().ok_or(USAGE)?),
            "--reset" => reset = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok((url, reset))
}
