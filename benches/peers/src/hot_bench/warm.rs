//! Leases on many warm keys, such as a policy for each tenant: decisions a second with leases and without.

use std::time::Duration;

use serde_json::json;

use super::{Load, Quota, Variant, slice};
use crate::{ROUNDS, Result, args::Args, endpoint::Endpoint, report::Report, stats::median};

/// Far above the load of any key, so that no check is denied.
const QUOTA: Quota =
    Quota { name: "high", limit: 100_000_000, window: Duration::from_secs(60), lease: 100_000, load: 0 };
/// Tenths of the exponent of Zipf's law, and the keys.
const LOADS: [Load; 4] = [
    Load { keys: 100_000, tenths: 10 },
    Load { keys: 100_000, tenths: 11 },
    Load { keys: 10_000, tenths: 0 },
    Load { keys: 1_000, tenths: 0 },
];
const PROCESSES: [usize; 2] = [1, 4];
/// Long enough for the leases of all warm keys to begin in the first half.
const SECONDS: f64 = 6.0;

pub fn run(args: &Args, endpoint: &Endpoint, report: &mut Report) -> Result<()> {
    let admin = &mut endpoint.blocking()?;
    let time = Duration::from_secs_f64(if args.quick { args.seconds } else { SECONDS });
    for load in args.some_of(&LOADS) {
        for &processes in args.some_of(&PROCESSES) {
            println!("\n{load}, processes: {processes}");
            let mut results: [[Vec<f64>; 2]; 2] = Default::default();
            for _ in 0..if args.quick { 1 } else { ROUNDS } {
                for (variant, results) in [Variant::Leased, Variant::Plain].into_iter().zip(&mut results) {
                    let (decisions, calls) = slice(admin, endpoint.url(), variant, QUOTA, *load, processes, time)?;
                    results[0].push(2.0 * decisions / time.as_secs_f64());
                    results[1].push(calls / time.as_secs_f64());
                }
            }
            let medians = results.map(|results| results.map(median));
            for (variant, [rate, calls]) in [Variant::Leased, Variant::Plain].into_iter().zip(medians) {
                println!("  {:<24} {rate:>9.0}/s  {calls:>7.0} calls/s", variant.name());
                report.figure(json!({
                    "variant": variant.name(), "keys": load.keys, "zipf": load.tenths as f64 / 10.0,
                    "processes": processes, "per_second": rate, "redis_calls_per_second": calls,
                }));
            }
            let name = format!("warm_keys_{}_zipf_{}_{processes}_vs_no_lease", load.keys, load.tenths);
            report.ratio(&name, medians[0][0] / medians[1][0]);
        }
    }
    Ok(())
}
