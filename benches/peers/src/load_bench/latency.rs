//! Requests per second in a closed loop, and latencies in an open loop at parts of them.

use serde_json::json;

use super::bench::Bench;
use super::outcome::{Latency, Outcome};
use super::site::{Limit, Site, Variant};
use super::tools::{Amount, Protocol, Tool};
use crate::{Result, report::Report, stats::median};

/// The parts of the capacity in the tables and charts, in percent.
pub const SHARES: [u32; 4] = [25, 50, 75, 95];

/// What a generator gets from each variant when it waits for each response before the next request.
pub struct Rates {
    pub tool: Tool,
    pub protocol: Protocol,
    pub per_second: [f64; Variant::ALL.len()],
}

/// The latencies of a variant by the load.
pub struct Curve {
    pub protocol: Protocol,
    pub variant: Variant,
    pub capacity: f64,
    pub points: Vec<Point>,
}

pub struct Point {
    /// In percent of the capacity.
    pub share: u32,
    pub per_second: f64,
    pub latency: Latency,
}

impl Point {
    /// Whether the generator has sent less than it should, because the machine had other work.
    pub fn is_short_of(&self, capacity: f64) -> bool {
        self.per_second < 0.97 * capacity * f64::from(self.share) / 100.0
    }
}

/// The capacity of each variant, for each generator and protocol.
pub fn capacities(bench: &Bench<'_>, report: &mut Report) -> Result<Vec<Rates>> {
    let sites = sites(bench)?;
    let mut all = Vec::new();
    for protocol in Protocol::ALL {
        println!("\n{} in a closed loop: requests/s", protocol.name());
        for tool in bench.programs.tools(protocol) {
            let mut rounds = Variant::ALL.map(|_| Vec::new());
            for _ in 0..bench.rounds {
                for (site, rounds) in sites.iter().zip(&mut rounds) {
                    let outcome = bench.programs.run(tool, protocol, Amount::Time(bench.slice), &site.url())?;
                    rounds.push(without_refusals(tool, outcome)?.per_second);
                }
            }
            let per_second = rounds.map(median);
            println!("  {:<11} {}", tool.name(), named(&per_second));
            for (variant, rate) in Variant::ALL.iter().zip(per_second) {
                report.figure(json!({
                    "generator": tool.name(), "protocol": protocol.name(), "variant": variant.name(),
                    "per_second": rate,
                }));
            }
            report.ratio(&format!("load_{}_{}_memory", tool.name(), protocol.name()), per_second[1] / per_second[0]);
            all.push(Rates { tool, protocol, per_second });
        }
    }
    Ok(all)
}

/// The latencies by oha, at parts of the capacity that oha has found.
pub fn curves(bench: &Bench<'_>, rates: &[Rates], report: &mut Report) -> Result<Vec<Curve>> {
    let sites = sites(bench)?;
    let mut curves = Vec::new();
    for Rates { protocol, per_second, .. } in rates.iter().filter(|rates| rates.tool == Tool::Oha) {
        println!("\n{} in an open loop: ms at p50, p99, p99.9", protocol.name());
        let mut of_protocol: Vec<Curve> = (Variant::ALL.iter().zip(per_second))
            .map(|(&variant, &capacity)| Curve { protocol: *protocol, variant, capacity, points: Vec::new() })
            .collect();
        for share in SHARES {
            let mut rounds = Variant::ALL.map(|_| Vec::new());
            for _ in 0..bench.rounds {
                for ((site, curve), rounds) in sites.iter().zip(&of_protocol).zip(&mut rounds) {
                    let rate = Amount::Rate(curve.capacity * f64::from(share) / 100.0, bench.slice);
                    let outcome = bench.programs.run(Tool::Oha, *protocol, rate, &site.url())?;
                    rounds.push(without_refusals(Tool::Oha, outcome)?);
                }
            }
            for (curve, rounds) in of_protocol.iter_mut().zip(rounds) {
                let latencies: Vec<Latency> = rounds.iter().map(|round| round.latency).collect();
                let latency = Latency::median(&latencies);
                let per_second = median(rounds.iter().map(|round| round.per_second).collect());
                let Latency { p50, p99, p999 } = latency;
                println!(
                    "  {share:>2} %  {:<9} {per_second:>8.0}/s  {:>8.2} {:>8.2} {:>8.2}",
                    curve.variant.name(),
                    p50 / 1e3,
                    p99 / 1e3,
                    p999 / 1e3
                );
                report.figure(json!({
                    "protocol": protocol.name(), "variant": curve.variant.name(), "share": share,
                    "per_second": per_second, "p50_us": p50, "p99_us": p99, "p999_us": p999,
                }));
                curve.points.push(Point { share, per_second, latency });
            }
        }
        curves.append(&mut of_protocol);
    }
    Ok(curves)
}

/// A server of each variant. Only one of them is under load at a time.
fn sites(bench: &Bench<'_>) -> Result<Vec<Site>> {
    Variant::ALL.iter().map(|variant| bench.start(*variant, Limit::FAR)).collect()
}

/// No request is refused, because the limit is far.
fn without_refusals(tool: Tool, outcome: Outcome) -> Result<Outcome> {
    let Outcome { denied, failed, .. } = outcome;
    if denied + failed > 0 {
        return Err(format!("{}: {denied} requests were denied and {failed} failed", tool.name()).into());
    }
    Ok(outcome)
}

fn named(per_second: &[f64]) -> String {
    let named = Variant::ALL.iter().zip(per_second).map(|(variant, rate)| format!("{} {rate:.0}", variant.name()));
    named.collect::<Vec<_>>().join(", ")
}
