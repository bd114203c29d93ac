//! What a lease costs where it does not help: many keys, each checked once.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tollgate::{Limiter, Policy, RedisStore};

use crate::stats::{self, CommandStats, median};
use crate::{ROUNDS, Result, args::Args, endpoint::Endpoint, report::Report};

const IN_FLIGHT: [u64; 3] = [1, 16, 256];

pub fn run(args: &Args, endpoint: &Endpoint, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let admin = &mut endpoint.blocking()?;
    let keys = if args.quick { 512 } else { 10_000 };
    let limiter =
        Limiter::new(RedisStore::builder().prefix("cold:").deadline(Duration::from_secs(10)).open(endpoint.url())?);
    let plain = Policy::per_minute("cold", 1_000_000)?;
    let variants = [("no lease", plain.clone()), ("lease", plain.with_lease(1_000))];
    runtime.block_on(limiter.ready())?;
    for in_flight in IN_FLIGHT {
        println!("\n{keys} keys, each checked once, {in_flight} in flight");
        let mut results: [[Vec<f64>; 3]; 2] = Default::default();
        for _ in 0..ROUNDS {
            for ((_, policy), results) in variants.iter().zip(&mut results) {
                redis::cmd("FLUSHALL").exec(admin)?;
                stats::reset_commandstats(admin)?;
                let start = Instant::now();
                runtime.block_on(check_all(&limiter, policy, keys, in_flight))?;
                let ns = start.elapsed().as_nanos() as f64;
                let stats = CommandStats::read(admin)?;
                let sums = [ns / 1_000.0, stats.calls as f64, stats.usec as f64];
                results.iter_mut().zip(sums).for_each(|(all, sum)| all.push(sum / keys as f64));
            }
        }
        let medians = results.map(|results| results.map(median));
        for ((name, _), [us, calls, redis_us]) in variants.iter().zip(medians) {
            println!("  {name:<10} {us:>7.2} us  {redis_us:>6.2} us of Redis  {calls:.3} calls for each check");
            report.figure(json!({
                "cold_keys": name, "in_flight": in_flight, "us": us, "redis_us": redis_us, "calls": calls,
            }));
        }
        let [plain, leased] = medians;
        for (name, index) in [("us", 0), ("calls", 1), ("redis_us", 2)] {
            report.ratio(&format!("cold_keys_{name}_vs_no_lease_{in_flight}"), leased[index] / plain[index]);
        }
    }
    Ok(())
}

async fn check_all(limiter: &Limiter, policy: &Policy, keys: u64, in_flight: u64) -> Result<()> {
    let mut tasks = JoinSet::new();
    for first in 0..in_flight {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tasks.spawn(async move {
            for key in (first..keys).step_by(in_flight as usize) {
                let _ = limiter.check(key, &policy, 1).await?;
            }
            Ok::<_, tollgate::Error>(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}
