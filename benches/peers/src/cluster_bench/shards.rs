//! One hot key on a cluster: decisions per second with and without shards, and the CPU time of the busiest master.

use std::time::Duration;

use serde_json::json;
use tollgate::Policy;

use super::{hot_key::HotKey, near_limit, nodes::Nodes};
use crate::redis_bench::{Load, Slice};
use crate::{ROUNDS, Result, args::Args, report::Report, stats::median};

/// Numbers of checks in flight, all from one store or from 32. A store stands for a process: its checks share calls.
const LEVELS: [(usize, usize); 3] = [(256, 1), (1_024, 1), (256, 32)];
/// Numbers of shards; 1 is one node.
const SHARDS: [u32; 5] = [1, 3, 8, 16, 64];
/// Far above the load, in steps that bound the log, so that no check is denied.
const LIMIT: u64 = 4_000_000_000;
const WINDOW: Duration = Duration::from_secs(60);

/// The results of one slice.
struct Measured {
    slice: Slice,
    /// Microseconds of CPU time of each master's main thread.
    cpu_us: Vec<f64>,
}

impl Measured {
    /// Decisions in each second of CPU time of the busiest master: what the cluster decides if each master has a core.
    fn per_busiest_second(&self) -> f64 {
        self.slice.decisions as f64 / self.cpu_us.iter().copied().fold(0.0, f64::max) * 1e6
    }

    /// The busiest master's part of the CPU time of all masters.
    fn busiest_part(&self) -> f64 {
        self.cpu_us.iter().copied().fold(0.0, f64::max) / self.cpu_us.iter().sum::<f64>()
    }
}

/// Returns the version of Redis.
pub fn run(args: &Args, report: &mut Report) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let nodes = Nodes::start()?;
    let key: &'static [String] = vec!["hot".to_owned()].leak();
    let slice = Duration::from_secs_f64(args.seconds) / ROUNDS;
    let log = Policy::new("hot", LIMIT, WINDOW)?.with_resolution(WINDOW / 1_000);
    for &(in_flight, stores) in args.some_of(&LEVELS) {
        let mut variants = Vec::new();
        for &shards in args.some_of(&SHARDS) {
            let hot = HotKey::new(&nodes, "shards:", log.clone().with_shards(shards), stores)?;
            // Connects, loads the script and creates the keys.
            runtime.block_on(hot.run(key, in_flight, Duration::from_millis(500)))?;
            variants.push(hot);
        }
        let mut rounds: Vec<Vec<Measured>> = variants.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (hot, rounds) in variants.iter().zip(&mut rounds) {
                let before = nodes.cpu_times()?;
                let slice = runtime.block_on(hot.run(key, in_flight, slice))?;
                let cpu_us = nodes.cpu_times()?.into_iter().zip(before).map(|(now, before)| now.us_since(before));
                rounds.push(Measured { slice, cpu_us: cpu_us.collect() });
            }
        }
        print(in_flight, stores, &rounds, report);
    }
    runtime.block_on(near_limit::run(&nodes, args, report))?;
    nodes.version()
}

fn print(in_flight: usize, stores: usize, rounds: &[Vec<Measured>], report: &mut Report) {
    println!("\none hot key, {in_flight} in flight, stores: {stores}, three masters");
    let mut one_node = None;
    for (shards, rounds) in SHARDS.into_iter().zip(rounds) {
        let of = |field: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(field).collect());
        let (per_second, p50_us) = (of(&|round| round.slice.per_second), of(&|round| round.slice.p50_us));
        let (busiest, part) = (of(&Measured::per_busiest_second), of(&Measured::busiest_part));
        println!(
            "  {shards:>2} shards {per_second:>8.0}/s  p50 {p50_us:>6.0} us  {busiest:>8.0} in a CPU second of the \
             busiest master, which has {:.0} % of the CPU time of all",
            100.0 * part
        );
        report.figure(json!({
            "shards": shards, "in_flight": in_flight, "stores": stores, "per_second": per_second, "p50_us": p50_us,
            "per_cpu_second_of_busiest": busiest, "busiest_part": part,
        }));
        let (one_per_second, one_busiest) = *one_node.get_or_insert((per_second, busiest));
        if shards > 1 {
            let name = |what| format!("shards_{in_flight}_of_{stores}_stores_{what}_{shards}_shards_vs_one_node");
            report.ratio(&name("decisions"), per_second / one_per_second);
            report.ratio(&name("decisions_per_cpu_of_busiest"), busiest / one_busiest);
        }
    }
}
