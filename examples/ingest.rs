//! One quota, eight jobs, no HTTP: `cargo run --release --example ingest [-- --redis URL [--reset]]`.
//!
//! An upstream API grants 9 500 units a day. Eight regional jobs spend from it at once, through clones of one
//! `Limiter`; on Redis, also from several machines. A list call costs 1 and does little harm, so it passes when the
//! store cannot answer. A search call costs 100, so it does not. A job that runs out stops and says when to come back.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::sleep};
use tollgate::{Decision, FailurePolicy, Limiter, MemoryStore, Policy, RedisStore, decision::Source};

type Failure = Box<dyn std::error::Error>;

/// Who pays: the upstream account, whichever job spends.
const ACCOUNT: &str = "upstream:account-1";
const REGIONS: [&str; 8] = ["africa", "arctic", "asia", "europe", "india", "latam", "oceania", "us"];

/// Each job would like 12 searches, each followed by the pages of its result: 12 * (100 + 4) units, 9 984 in all.
const SEARCHES: u32 = 12;
const PAGES: u32 = 4;

/// A kind of call: what it costs, and whether it may go out when nobody can say what is left.
#[derive(Clone, Copy)]
struct Call {
    cost: u32,
    when_in_doubt: FailurePolicy,
}

const LIST: Call = Call { cost: 1, when_in_doubt: FailurePolicy::Open };
const SEARCH: Call = Call { cost: 100, when_in_doubt: FailurePolicy::Closed };

/// What became of a job.
#[derive(Default)]
struct Report {
    region: &'static str,
    searches: u32,
    lists: u32,
    /// Units that the store has charged.
    units: u32,
    /// Calls that went out although the store could not answer.
    unjudged: u32,
    /// Calls that did not go out because the store could not answer.
    put_off: u32,
    ran_out: Option<RanOut>,
}

/// The call that did not fit, and the wait until it does.
struct RanOut {
    cost: u32,
    come_back_in: Duration,
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
        Some(url) => Limiter::new(RedisStore::connect(url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    let quota = Policy::per_day("upstream", 9_500)?;
    if reset {
        limiter.reset(ACCOUNT, &quota).await?;
    }

    println!("{} units a day, shared by {} jobs. {}.\n", quota.limit(), REGIONS.len(), left(&limiter, &quota).await);
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
    let spent: u32 = reports.iter().map(|report| report.units).sum();
    assert!(spent <= quota.limit(), "{spent} units were admitted, {} were to spend", quota.limit());
    Ok(())
}

/// One region's work, until it is done or the quota is.
async fn work(limiter: Limiter, quota: Policy, region: &'static str) -> Report {
    let mut report = Report { region, ..Report::default() };
    for _ in 0..SEARCHES {
        let calls = std::iter::once(SEARCH).chain(std::iter::repeat_n(LIST, PAGES as usize));
        for call in calls {
            let result = limiter.check(ACCOUNT, &quota, call.cost).await;
            let decision = call.when_in_doubt.resolve(result);
            if decision.is_allowed() {
                upstream().await;
            }
            report.note(call, &decision);
            if report.ran_out.is_some() {
                return report;
            }
        }
    }
    report
}

/// Stands for the call that is paid for.
async fn upstream() {
    sleep(Duration::from_millis(2)).await;
}

impl Report {
    fn note(&mut self, call: Call, decision: &Decision) {
        if !decision.is_allowed() {
            // Without a verdict there is no wait to tell, and without a wait there is no end of the quota.
            match decision.retry_after() {
                Some(come_back_in) => self.ran_out = Some(RanOut { cost: call.cost, come_back_in }),
                None => self.put_off += 1,
            }
            return;
        }
        match call.cost {
            1 => self.lists += 1,
            _ => self.searches += 1,
        }
        match decision.source() {
            Source::Store => self.units += call.cost,
            _ => self.unjudged += 1,
        }
    }
}

fn print_summary(reports: &[Report]) {
    println!("{:10}{:>10}{:>8}{:>8}", "job", "searches", "lists", "units");
    for report in reports {
        let end = match &report.ran_out {
            Some(RanOut { cost, come_back_in }) => {
                format!("out of quota: the next {cost} fit in {}", hours(*come_back_in))
            }
            None if report.put_off > 0 => {
                format!("store down: {} searches put off, {} lists passed unjudged", report.put_off, report.unjudged)
            }
            None => "done".to_owned(),
        };
        println!("{:10}{:10}{:8}{:8}   {end}", report.region, report.searches, report.lists, report.units);
    }
    let sum = |of: fn(&Report) -> u32| reports.iter().map(of).sum::<u32>();
    let (searches, lists, units) = (sum(|r| r.searches), sum(|r| r.lists), sum(|r| r.units));
    println!("{:10}{searches:10}{lists:8}{units:8}   units charged by this run", "all");
}

/// What is left, without charging anything.
async fn left(limiter: &Limiter, quota: &Policy) -> String {
    match limiter.peek(ACCOUNT, quota).await {
        Ok(decision) => format!("Left: {}", decision.available().unwrap_or_default()),
        Err(error) => format!("Left: unknown ({error})"),
    }
}

/// Rounded up to the second, so that nobody comes back too early.
fn hours(wait: Duration) -> String {
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
