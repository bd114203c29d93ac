//! Decisions per second, calls and time in Redis on a cluster of three masters: keys that share hash tags, beside a tag
//! for each key.

mod hot_key;
mod near_limit;
mod nodes;
pub mod shards;

use std::time::Duration;

use serde_json::json;
use tollgate::{Limiter, Policy, RedisStore};

use self::nodes::Nodes;
use crate::redis_bench::{Checker, Load, QUOTA, Slice, keys};
use crate::stats::{CommandStats, median};
use crate::{ROUNDS, Result, args::Args, report::Report};

/// Numbers of checks in flight.
const LEVELS: [usize; 4] = [1, 16, 256, 1_024];
/// Names and numbers of hash tags. Without a number each key has a tag of its own.
const VARIANTS: [(&str, Option<u16>); 3] = [("a tag for each key", None), ("48 tags", Some(48)), ("96 tags", Some(96))];

/// The exact log on a cluster, without the deny cache, so that Redis makes every decision.
#[derive(Clone)]
struct ClusterLimiter {
    limiter: Limiter,
    policy: Policy,
}

impl ClusterLimiter {
    fn new(nodes: &Nodes, prefix: &str, tags: Option<u16>) -> Result<Self> {
        let builder = RedisStore::builder().prefix(prefix).deadline(Duration::from_secs(10)).deny_cache(false);
        let store = builder.cluster_hash_tags(tags).open_cluster(nodes.urls())?;
        let policy = Policy::new("peers", QUOTA.limit, Duration::from_micros(QUOTA.window_us))?;
        Ok(Self { limiter: Limiter::new(store), policy })
    }
}

impl Checker for ClusterLimiter {
    async fn check(&mut self, key: &str) -> Result<bool> {
        Ok(self.limiter.check(key, &self.policy, 1).await?.is_allowed())
    }
}

/// The results of one slice.
struct Measured {
    slice: Slice,
    /// The statistics of each master.
    stats: Vec<CommandStats>,
}

impl Measured {
    fn sum(&self, field: fn(&CommandStats) -> u64) -> f64 {
        self.stats.iter().map(field).sum::<u64>() as f64
    }

    /// Microseconds of execution per decision, in all masters.
    fn redis_us(&self) -> f64 {
        self.sum(|stats| stats.usec) / self.slice.decisions as f64
    }

    fn checks_per_call(&self) -> f64 {
        self.slice.decisions as f64 / self.sum(|stats| stats.calls)
    }

    /// The largest value of a master over the smallest.
    fn imbalance(&self, field: fn(&CommandStats) -> u64) -> f64 {
        let values = || self.stats.iter().map(field);
        values().max().unwrap_or(0) as f64 / values().min().unwrap_or(0) as f64
    }
}

/// Returns the version of Redis.
pub fn run(args: &Args, report: &mut Report) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let nodes = Nodes::start()?;
    let keys: &'static [String] = keys(10_000).leak();
    let slice = Duration::from_secs_f64(args.seconds) / ROUNDS;
    let mut limiters = Vec::new();
    for (number, (name, tags)) in VARIANTS.into_iter().enumerate() {
        let limiter = ClusterLimiter::new(&nodes, &format!("{number}:"), tags)?;
        // Loads the script and creates the keys.
        runtime.block_on(limiter.run(keys, 256, Duration::from_millis(500)))?;
        limiters.push((name, limiter));
    }
    for in_flight in LEVELS {
        let mut rounds: Vec<Vec<Measured>> = limiters.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for ((_, limiter), rounds) in limiters.iter().zip(&mut rounds) {
                nodes.reset_stats()?;
                let slice = runtime.block_on(limiter.run(keys, in_flight, slice))?;
                rounds.push(Measured { slice, stats: nodes.stats()? });
            }
        }
        print(in_flight, &limiters, &rounds, report);
    }
    nodes.version()
}

fn print(in_flight: usize, limiters: &[(&str, ClusterLimiter)], rounds: &[Vec<Measured>], report: &mut Report) {
    println!("\n{in_flight} in flight, three masters, {} keys", 10_000);
    let mut redis_us = Vec::new();
    for ((name, _), rounds) in limiters.iter().zip(rounds) {
        let of = |field: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(field).collect());
        let (per_second, p50_us) = (of(&|round| round.slice.per_second), of(&|round| round.slice.p50_us));
        let (p99_us, us) = (of(&|round| round.slice.p99_us), of(&Measured::redis_us));
        let (checks, usec) = (of(&Measured::checks_per_call), of(&|round| round.imbalance(|stats| stats.usec)));
        let calls = of(&|round| round.imbalance(|stats| stats.calls));
        println!(
            "  {name:<20} {per_second:>8.0}/s  p50 {p50_us:>6.0} us  p99 {p99_us:>6.0} us  {us:>5.2} us in Redis  \
             {checks:>5.2} checks a call  masters {usec:.3} (time) {calls:.3} (calls)"
        );
        report.figure(json!({
            "variant": name, "in_flight": in_flight, "per_second": per_second, "p50_us": p50_us, "p99_us": p99_us,
            "redis_us": us, "checks_per_call": checks, "most_over_least_time": usec, "most_over_least_calls": calls,
        }));
        redis_us.push((us, per_second));
    }
    let [(single_us, single_per_second), (grouped_us, grouped_per_second), ..] = redis_us[..] else { return };
    report.ratio(&format!("cluster_{in_flight}_redis_time_48_tags_vs_tag_for_each_key"), grouped_us / single_us);
    let ratio = grouped_per_second / single_per_second;
    report.ratio(&format!("cluster_{in_flight}_decisions_48_tags_vs_tag_for_each_key"), ratio);
}
