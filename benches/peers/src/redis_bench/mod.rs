//! Decisions per second and latency through Redis: tollgate's store beside other limiters and plain scripts.

mod contender;
mod deny;
mod growth;
mod load;
mod measure;
mod peers;
mod results;
mod servers;
mod throttlecrab;
mod tollgate_variants;

use std::{fs, time::Duration};

use redis::Connection;

use self::contender::Contender;
pub use self::{
    load::{Checker, Load, QUOTA, Slice},
    peers::RedisCell,
    servers::Servers,
    tollgate_variants::{Setup, TollgateLimiter},
};
use crate::{ROUNDS, Result, args::Args, report::Report};

const KEYS: usize = 10_000;
/// Numbers of checks in flight.
const LEVELS: [usize; 3] = [1, 16, 256];
/// Round trips through a proxy, in milliseconds: half of it passes in each direction. 0 shows the cost of the proxy.
const ROUND_TRIPS_MS: [u64; 3] = [0, 1, 5];
pub fn run(args: &Args, servers: &Servers, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let time = Duration::from_secs_f64(args.seconds);
    let direct = servers.direct();
    let admin = &mut direct.redis.blocking()?;
    let keys: &'static [String] = keys(KEYS).leak();
    runtime.block_on(async {
        let mut variants = measure::connect(&Contender::ALL, &direct, keys, report).await;
        measure::measure(&mut variants, keys, admin, time / ROUNDS, report).await?;
        results::print(&variants, None, report);
        results::throughput_ratios(&variants, "redis", report);
        results::direct_ratios(&variants, report);
        if let Some(path) = &args.svg {
            fs::write(path, results::chart(&variants, &servers.redis.version()?))?;
        }
        drop(variants);
        latency(servers, keys, admin, time, report).await?;
        redis::cmd("FLUSHALL").exec(admin)?;
        deny::run(&direct.redis, admin, time, report).await?;
        growth::keys(args, &direct.redis, admin, 2 * time, report).await
    })?;
    growth::limit(args, admin, time, report)
}

pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|key| format!("user:{key}")).collect()
}

/// Measures tollgate's log and all peers through proxies with latency.
async fn latency(
    servers: &Servers,
    keys: &'static [String],
    admin: &mut Connection,
    time: Duration,
    report: &mut Report,
) -> Result<()> {
    let mut contenders = vec![Contender::Log];
    contenders.extend(Contender::RATIOS.map(|(peer, _)| peer));
    for milliseconds in ROUND_TRIPS_MS {
        redis::cmd("FLUSHALL").exec(admin)?;
        let endpoints = servers.behind(Duration::from_millis(milliseconds));
        let mut variants = measure::connect(&contenders, &endpoints, keys, report).await;
        // Half the time of a direct level, because this is repeated for each round trip.
        measure::measure(&mut variants, keys, admin, time / ROUNDS / 2, report).await?;
        results::print(&variants, Some(milliseconds), report);
        results::throughput_ratios(&variants, &format!("redis_{milliseconds}ms"), report);
    }
    Ok(())
}
