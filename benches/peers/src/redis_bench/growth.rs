//! The cost of a decision when the number of keys grows, and when the limit grows.

use std::{future::Future, time::Duration};

use redis::Connection;
use serde_json::json;
use tollgate::Algorithm;

use super::load::{Checker, Load};
use super::peers::Multiplexed;
use super::tollgate_variants::{Setup, TollgateLimiter};
use crate::lua_bench::{LOG, Scenario, Workload};
use crate::scripts::{self, Quota};
use crate::stats::{self, CommandStats, median};
use crate::{ROUNDS, Result, args::Args, endpoint::Endpoint, report::Report};

const IN_FLIGHT: usize = 256;

/// Compares 1 000 000 keys with 1 000, for tollgate's log and for a plain script.
pub async fn keys(
    args: &Args,
    endpoint: &Endpoint,
    admin: &mut Connection,
    time: Duration,
    report: &mut Report,
) -> Result<()> {
    println!("\ngrowth with the number of keys:");
    let log = |prefix, quota| async move {
        TollgateLimiter::new(endpoint, Setup { prefix, algorithm: Algorithm::SlidingWindowLog, batching: true }, quota)
    };
    keys_of(args, "", log, admin, time, report).await?;
    redis::cmd("FLUSHALL").exec(admin)?;
    let sorted_set = |prefix, quota| Multiplexed::new(endpoint, prefix, scripts::SORTED_SET_LOG, quota);
    keys_of(args, "_sorted_set", sorted_set, admin, time, report).await
}

/// Compares both numbers of keys. The window grows with the number, so that it holds about two requests of each key.
async fn keys_of<C: Checker, F: Future<Output = Result<C>>>(
    args: &Args,
    suffix: &str,
    new: impl Fn(&'static str, Quota) -> F,
    admin: &mut Connection,
    time: Duration,
    report: &mut Report,
) -> Result<()> {
    let mut sides = Vec::new();
    let many = if args.quick { 10_000 } else { 1_000_000 };
    for (prefix, count) in [("few:", 1_000_usize), ("many:", many)] {
        let keys: &'static [String] = super::keys(count).leak();
        let checker = new(prefix, Quota { limit: 1_000, window_us: 10 * count as u64 }).await?;
        touch_all(&checker, keys).await?;
        // Runs for one window, until as many requests expire as arrive.
        checker.run(keys, IN_FLIGHT, Duration::from_micros(10 * count as u64)).await?;
        sides.push((checker, keys, Vec::new(), Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (checker, keys, redis_us, client_us) in &mut sides {
            stats::reset_commandstats(admin)?;
            let slice = checker.run(keys, IN_FLIGHT, time / ROUNDS).await?;
            redis_us.push(CommandStats::read(admin)?.usec as f64 / slice.decisions as f64);
            client_us.push(1e6 / slice.per_second);
        }
    }
    let mut medians = Vec::new();
    for (_, keys, redis_us, client_us) in sides {
        let (keys, redis_us, client_us) = (keys.len(), median(redis_us), median(client_us));
        println!("  {keys:>9} keys{suffix:<12} {redis_us:>7.2} us in Redis, {client_us:>7.2} us per decision");
        let growth = format!("keys{suffix}");
        report.figure(json!({ "growth": growth, "keys": keys, "redis_us": redis_us, "client_us": client_us }));
        medians.push((redis_us, client_us));
    }
    report.ratio(&format!("growth_keys{suffix}"), medians[1].1 / medians[0].1);
    report.ratio(&format!("growth_keys{suffix}_redis_cpu"), medians[1].0 / medians[0].0);
    Ok(())
}

/// Checks every key one time.
async fn touch_all<C: Checker>(checker: &C, keys: &'static [String]) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for part in keys.chunks(keys.len().div_ceil(IN_FLIGHT)) {
        let mut checker = checker.clone();
        tasks.spawn(async move {
            for key in part {
                checker.check(key).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

/// Compares a log filled to a limit of 1 000 000 with one filled to 100, while as many requests expire as arrive.
pub fn limit(args: &Args, connection: &mut Connection, time: Duration, report: &mut Report) -> Result<()> {
    redis::cmd("FLUSHALL").exec(connection)?;
    let mut sides = Vec::new();
    for limit in [100, if args.quick { 10_000 } else { 1_000_000 }] {
        let scenario = Scenario { fill: limit, cost: 1, allowed: true };
        let subject = crate::lua_bench::Subject { name: if limit == 100 { "small" } else { "large" }, ..LOG };
        sides.push((limit, Workload::prepare(connection, subject, scenario, 4)?, Vec::new(), Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (_, workload, redis_us, client_us) in &mut sides {
            let timing = workload.slice(connection, time / ROUNDS)?;
            redis_us.push(timing.redis_us);
            client_us.push(timing.client_us);
        }
    }
    println!("\ngrowth with the limit, log filled to the limit:");
    let mut medians = Vec::new();
    for (limit, workload, redis_us, client_us) in sides {
        let (redis_us, client_us, bytes) = (median(redis_us), median(client_us), workload.bytes(connection)?);
        println!("  limit {limit:>9} {redis_us:>7.2} us in Redis, {client_us:>7.2} us per decision, {bytes} B");
        report.figure(json!({
            "growth": "limit", "limit": limit, "redis_us": redis_us, "client_us": client_us, "bytes": bytes,
        }));
        medians.push((redis_us, client_us));
    }
    report.ratio("growth_limit", medians[1].1 / medians[0].1);
    report.ratio("growth_limit_redis_cpu", medians[1].0 / medians[0].0);
    Ok(())
}
