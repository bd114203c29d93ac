//! Decisions per second and latency through Redis: tollgate's store beside other limiters and plain scripts.

mod deny;
mod growth;
mod load;
mod peers;
mod tollgate_variants;

use std::{fs, time::Duration};

use redis::Connection;
use serde_json::json;
use tollgate::Algorithm;

pub use self::{
    load::{Load, Slice},
    tollgate_variants::{Setup, TollgateLimiter},
};
use self::{
    peers::{Bb8, Ceiling, Multiplexed, RateTier, RedisCell},
    tollgate_variants::TollgateScript,
};
use crate::{
    ROUNDS, Result,
    args::Args,
    report::Report,
    scripts::{self, Quota},
    server::RedisServer,
    stats::{self, CommandStats, median},
    svg::{Bar, bar_chart},
};

const KEYS: usize = 10_000;
/// Numbers of checks in flight.
const LEVELS: [usize; 3] = [1, 16, 256];
/// 1 000 per minute: no key reaches the limit during the measurement.
pub const QUOTA: Quota = Quota { limit: 1_000, window_us: 60_000_000 };

const LOG: &str = "tollgate: exact log";
const LOG_UNBATCHED: &str = "tollgate: exact log, unbatched";
const COUNTER: &str = "tollgate: counter";
const BUCKET: &str = "tollgate: token bucket";
const DIRECT: &str = "tollgate: script called directly";
const BB8: &str = "bb8 default + sorted-set script";
const SORTED_SET: &str = "sorted-set script, multiplexed";
const GCRA: &str = "GCRA script, multiplexed";
const RATE_TIER: &str = "tower-rate-tier";
const REDIS_CELL: &str = "redis-cell CL.THROTTLE, multiplexed";
const CEILING: &str = "return 1, multiplexed (ceiling)";

struct Variant {
    name: &'static str,
    load: Box<dyn Load>,
    /// The measured slices of each level.
    slices: [Vec<Measured>; LEVELS.len()],
}

#[derive(Clone, Copy)]
struct Measured {
    slice: Slice,
    /// Microseconds of execution in Redis per decision.
    redis_us: f64,
}

pub fn run(args: &Args, server: &RedisServer, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let time = Duration::from_secs_f64(args.seconds);
    let admin = &mut server.blocking()?;
    runtime.block_on(async {
        let mut variants = variants(args, server, report).await;
        let keys: &'static [String] = keys(KEYS).leak();
        warm_up(&mut variants, keys, report).await;
        measure(&mut variants, keys, admin, time / ROUNDS, report).await?;
        print(&variants, report);
        ratios(&variants, report);
        if let Some(path) = &args.svg {
            fs::write(path, chart(&variants, &server.version()?))?;
        }
        drop(variants);
        redis::cmd("FLUSHALL").exec(admin)?;
        deny::run(server, admin, time, report).await?;
        growth::keys(server, admin, 2 * time, report).await?;
        Result::Ok(())
    })?;
    growth::limit(admin, time, report)
}

pub fn keys(count: usize) -> Vec<String> {
    (0..count).map(|key| format!("user:{key}")).collect()
}

async fn variants(args: &Args, server: &RedisServer, report: &mut Report) -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |name, load: Result<Box<dyn Load>>| match load {
        Ok(load) => variants.push(Variant { name, load, slices: Default::default() }),
        Err(error) => report.leave_out(name, error),
    };
    for (name, prefix, algorithm, batching) in [
        (LOG, "log:", Algorithm::SlidingWindowLog, true),
        (LOG_UNBATCHED, "one:", Algorithm::SlidingWindowLog, false),
        (COUNTER, "ctr:", Algorithm::SlidingWindowCounter, true),
        (BUCKET, "bkt:", Algorithm::TokenBucket, true),
    ] {
        add(name, boxed(TollgateLimiter::new(server, Setup { prefix, algorithm, batching }, QUOTA)));
    }
    add(DIRECT, boxed(TollgateScript::new(server, QUOTA).await));
    add(BB8, boxed(Bb8::new(server, "bb8", scripts::SORTED_SET_LOG, QUOTA).await));
    add(SORTED_SET, boxed(Multiplexed::new(server, "zset", scripts::SORTED_SET_LOG, QUOTA).await));
    add(GCRA, boxed(Multiplexed::new(server, "gcra", scripts::GCRA, QUOTA).await));
    add(RATE_TIER, boxed(RateTier::new(server, QUOTA).await));
    if args.redis_cell.is_some() {
        add(REDIS_CELL, boxed(RedisCell::new(server, QUOTA).await));
    }
    add(CEILING, boxed(Ceiling::new(server).await));
    variants
}

fn boxed<L: Load + 'static>(load: Result<L>) -> Result<Box<dyn Load>> {
    load.map(|load| Box::new(load) as Box<dyn Load>)
}

/// Connects and loads scripts with a short run. Removes variants that fail.
async fn warm_up(variants: &mut Vec<Variant>, keys: &'static [String], report: &mut Report) {
    for index in (0..variants.len()).rev() {
        let result = variants[index].load.run(keys, 16, Duration::from_millis(100)).await;
        if let Err(error) = result {
            report.leave_out(variants[index].name, error);
            variants.remove(index);
        }
    }
}

async fn measure(
    variants: &mut [Variant],
    keys: &'static [String],
    admin: &mut Connection,
    slice: Duration,
    report: &mut Report,
) -> Result<()> {
    for (level, in_flight) in LEVELS.into_iter().enumerate() {
        for _ in 0..ROUNDS {
            for variant in &mut *variants {
                stats::reset_commandstats(admin)?;
                match variant.load.run(keys, in_flight, slice).await {
                    Ok(slice) => {
                        let redis_us = CommandStats::read(admin)?.usec as f64 / slice.decisions as f64;
                        variant.slices[level].push(Measured { slice, redis_us });
                    }
                    Err(error) => report.leave_out(&format!("{}, one round", variant.name), error),
                }
            }
        }
    }
    Ok(())
}

impl Variant {
    fn median(&self, level: usize, field: impl Fn(&Measured) -> f64) -> f64 {
        median(self.slices[level].iter().map(field).collect())
    }

    fn per_second(&self, level: usize) -> f64 {
        self.median(level, |measured| measured.slice.per_second)
    }
}

fn print(variants: &[Variant], report: &mut Report) {
    for (level, in_flight) in LEVELS.into_iter().enumerate() {
        println!("\n{in_flight} in flight, {KEYS} keys");
        for variant in variants {
            let per_second = variant.per_second(level);
            let p50_us = variant.median(level, |measured| measured.slice.p50_us);
            let p99_us = variant.median(level, |measured| measured.slice.p99_us);
            let allowed = variant.median(level, |measured| measured.slice.allowed);
            let redis_us = variant.median(level, |measured| measured.redis_us);
            let name = variant.name;
            println!(
                "  {name:<36} {per_second:>8.0}/s  p50 {p50_us:>7.0} us  p99 {p99_us:>7.0} us  \
                 {redis_us:>6.2} us in Redis  {:>5.1} % allowed",
                100.0 * allowed,
            );
            report.figure(json!({
                "variant": name, "in_flight": in_flight, "per_second": per_second,
                "p50_us": p50_us, "p99_us": p99_us, "redis_us": redis_us, "allowed": allowed,
            }));
        }
    }
}

fn ratios(variants: &[Variant], report: &mut Report) {
    let find = |name: &str| variants.iter().find(|variant| variant.name == name);
    let Some(log) = find(LOG) else { return };
    for (level, in_flight) in LEVELS.into_iter().enumerate() {
        for (name, peer) in [
            ("bb8_default", BB8),
            ("sorted_set", SORTED_SET),
            ("gcra", GCRA),
            ("tower_rate_tier", RATE_TIER),
            ("redis_cell", REDIS_CELL),
            ("ceiling", CEILING),
            ("unbatched", LOG_UNBATCHED),
        ] {
            if let Some(peer) = find(peer) {
                report
                    .ratio(&format!("redis_{in_flight}_log_vs_{name}"), log.per_second(level) / peer.per_second(level));
            }
        }
    }
    // The median of the ratios of the single rounds, because a slow round slows both variants.
    let paired = |level: usize, other: &Variant, field: fn(&Measured) -> f64| {
        let pairs = log.slices[level].iter().zip(&other.slices[level]);
        median(pairs.map(|(log, other)| field(log) / field(other)).collect())
    };
    if let Some(direct) = find(DIRECT) {
        report.ratio("p50_at_1_vs_direct", paired(0, direct, |measured| measured.slice.p50_us));
    }
    if let Some(unbatched) = find(LOG_UNBATCHED) {
        report.ratio("p99_at_256_batched_vs_unbatched", paired(2, unbatched, |measured| measured.slice.p99_us));
    }
    if let Some(sorted_set) = find(SORTED_SET) {
        report.ratio("redis_256_cpu_vs_sorted_set", paired(2, sorted_set, |measured| measured.redis_us));
    }
    if let (Some(unbatched), Some(sorted_set)) = (find(LOG_UNBATCHED), find(SORTED_SET)) {
        let cpu = |variant: &Variant| variant.median(2, |measured| measured.redis_us);
        report.ratio("redis_256_cpu_unbatched_vs_sorted_set", cpu(unbatched) / cpu(sorted_set));
    }
}

fn chart(variants: &[Variant], redis_version: &str) -> String {
    let level = LEVELS.len() - 1;
    let bar = |variant: &Variant| Bar {
        label: variant.name.to_owned(),
        value: variant.per_second(level),
        highlighted: variant.name.starts_with("tollgate"),
    };
    let mut bars: Vec<Bar> = variants.iter().filter(|variant| variant.name != DIRECT).map(bar).collect();
    bars.sort_by(|one, other| other.value.total_cmp(&one.value));
    let subtitle = format!(
        "{} requests in flight, {KEYS} keys, one Redis {redis_version} and client on one machine",
        LEVELS[level]
    );
    bar_chart("Decisions per second through Redis", &subtitle, &bars)
}
