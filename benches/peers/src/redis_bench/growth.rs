//! Does a decision cost more where there are more keys, or where the limit is larger?

use std::time::Duration;

use redis::Connection;
use serde_json::json;
use tollgate::Algorithm;

use super::{
    load::{Checker, Load},
    ours::{Ours, Setup},
};
use crate::{
    ROUNDS, Result,
    lua_bench::{LOG, Situation, Workload},
    report::Report,
    scripts::Quota,
    server::RedisServer,
    stats::{self, CommandStats, median},
};

const IN_FLIGHT: usize = 256;

/// 1 M keys against 1 k, both with about two requests of each key in its window: the window is as much longer.
pub async fn keys(server: &RedisServer, admin: &mut Connection, time: Duration, report: &mut Report) -> Result<()> {
    let mut sides = Vec::new();
    for (prefix, count) in [("1k:", 1_000_usize), ("1m:", 1_000_000)] {
        let keys: &'static [String] = super::keys(count).leak();
        let setup = Setup { prefix, algorithm: Algorithm::SlidingWindowLog, batching: true };
        let ours = Ours::new(server, setup, Quota { limit: 1_000, window_us: 10 * count as u64 })?;
        touch_all(&ours, keys).await?;
        // One window, until as many leave as come.
        ours.run(keys, IN_FLIGHT, Duration::from_micros(10 * count as u64)).await?;
        sides.push((ours, keys, Vec::new(), Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (ours, keys, redis_us, client_us) in &mut sides {
            stats::reset_commandstats(admin)?;
            let slice = ours.run(keys, IN_FLIGHT, time / ROUNDS).await?;
            redis_us.push(CommandStats::read(admin)?.usec as f64 / slice.decisions as f64);
            client_us.push(1e6 / slice.per_second);
        }
    }
    println!("\ngrowth, keys:");
    let mut medians = Vec::new();
    for (_, keys, redis_us, client_us) in sides {
        let (redis_us, client_us) = (median(redis_us), median(client_us));
        println!("  {:>9} keys   {redis_us:>7.2} us in Redis, {client_us:>7.2} us a decision", keys.len());
        report.figure(json!({ "growth": "keys", "keys": keys.len(), "redis_us": redis_us, "client_us": client_us }));
        medians.push((redis_us, client_us));
    }
    report.ratio("growth_keys", medians[1].1 / medians[0].1);
    report.ratio("growth_keys_redis_cpu", medians[1].0 / medians[0].0);
    Ok(())
}

/// Every key once.
async fn touch_all(ours: &Ours, keys: &'static [String]) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for part in keys.chunks(keys.len().div_ceil(IN_FLIGHT)) {
        let mut ours = ours.clone();
        tasks.spawn(async move {
            for key in part {
                ours.check(key).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result??;
    }
    Ok(())
}

/// A log that is full at a limit of a million against one that is full at 100; as many leave as come.
pub fn limit(connection: &mut Connection, time: Duration, report: &mut Report) -> Result<()> {
    redis::cmd("FLUSHALL").exec(connection)?;
    let mut sides = Vec::new();
    for limit in [100, 1_000_000] {
        let situation = Situation { fill: limit, cost: 1, allowed: true };
        let subject = crate::lua_bench::Subject { name: if limit == 100 { "small" } else { "large" }, ..LOG };
        sides.push((limit, Workload::prepare(connection, subject, situation, 4)?, Vec::new(), Vec::new()));
    }
    for _ in 0..ROUNDS {
        for (_, workload, redis_us, client_us) in &mut sides {
            let cost = workload.slice(connection, time / ROUNDS)?;
            redis_us.push(cost.redis_us);
            client_us.push(cost.client_us);
        }
    }
    println!("\ngrowth, limit (the log filled to it):");
    let mut medians = Vec::new();
    for (limit, workload, redis_us, client_us) in sides {
        let (redis_us, client_us, bytes) = (median(redis_us), median(client_us), workload.bytes(connection)?);
        println!("  limit {limit:>9} {redis_us:>7.2} us in Redis, {client_us:>7.2} us a decision, {bytes} B");
        report.figure(json!({
            "growth": "limit", "limit": limit, "redis_us": redis_us, "client_us": client_us, "bytes": bytes,
        }));
        medians.push((redis_us, client_us));
    }
    report.ratio("growth_limit", medians[1].1 / medians[0].1);
    report.ratio("growth_limit_redis_cpu", medians[1].0 / medians[0].0);
    Ok(())
}
