//! The results of the measured limiters: tables, ratios and the chart.

use serde_json::json;

use super::measure::{Measured, Variant};
use super::{KEYS, LEVELS, contender::Contender};
use crate::svg::{Bar, bar_chart};
use crate::{report::Report, stats::median};

/// Prints a table for each level. `round_trip_ms` is the latency of the proxy, if there is one.
pub fn print(variants: &[Variant], round_trip_ms: Option<u64>, report: &mut Report) {
    for (level, in_flight) in LEVELS.into_iter().enumerate() {
        let proxy = round_trip_ms.map_or(String::new(), |ms| format!(", round trip of {ms} ms through a proxy"));
        println!("\n{in_flight} in flight, {KEYS} keys{proxy}");
        for variant in variants {
            let per_second = variant.per_second(level);
            let p50_us = variant.median(level, |measured| measured.slice.p50_us);
            let p99_us = variant.median(level, |measured| measured.slice.p99_us);
            let allowed = variant.median(level, |measured| measured.slice.allowed);
            let redis_us = variant.median(level, |measured| measured.redis_us);
            let name = variant.contender.name();
            let in_redis = if redis_us.is_nan() { "-".to_owned() } else { format!("{redis_us:.2}") };
            println!(
                "  {name:<36} {per_second:>8.0}/s  p50 {p50_us:>7.0} us  p99 {p99_us:>7.0} us  \
                 {in_redis:>6} us in Redis  {:>5.1} % allowed",
                100.0 * allowed,
            );
            let mut figure = json!({
                "variant": name, "in_flight": in_flight, "per_second": per_second,
                "p50_us": p50_us, "p99_us": p99_us, "redis_us": redis_us, "allowed": allowed,
            });
            if let Some(ms) = round_trip_ms {
                figure["round_trip_ms"] = json!(ms);
            }
            report.figure(figure);
        }
    }
}

fn find(variants: &[Variant], contender: Contender) -> Option<&Variant> {
    variants.iter().find(|variant| variant.contender == contender)
}

/// Decisions per second of the log over those of the others. `prefix` is the start of the names.
pub fn throughput_ratios(variants: &[Variant], prefix: &str, report: &mut Report) {
    let Some(log) = find(variants, Contender::Log) else { return };
    for (level, in_flight) in LEVELS.into_iter().enumerate() {
        for (peer, name) in Contender::RATIOS {
            if let Some(peer) = find(variants, peer) {
                let ratio = log.per_second(level) / peer.per_second(level);
                report.ratio(&format!("{prefix}_{in_flight}_log_vs_{name}"), ratio);
            }
        }
    }
}

/// Ratios of latencies and of the time in Redis, measured without a proxy.
pub fn direct_ratios(variants: &[Variant], report: &mut Report) {
    let find = |contender| find(variants, contender);
    let Some(log) = find(Contender::Log) else { return };
    // The median of the ratios of the single rounds, because a slow round slows both variants.
    let paired = |level: usize, other: &Variant, field: fn(&Measured) -> f64| {
        let pairs = log.slices[level].iter().zip(&other.slices[level]);
        median(pairs.map(|(log, other)| field(log) / field(other)).collect())
    };
    if let Some(direct) = find(Contender::Direct) {
        report.ratio("p50_at_1_vs_direct", paired(0, direct, |measured| measured.slice.p50_us));
    }
    let unbatched = find(Contender::LogUnbatched);
    if let Some(unbatched) = unbatched {
        report.ratio("p99_at_256_batched_vs_unbatched", paired(2, unbatched, |measured| measured.slice.p99_us));
    }
    let sorted_set = find(Contender::SortedSet);
    if let Some(sorted_set) = sorted_set {
        report.ratio("redis_256_cpu_vs_sorted_set", paired(2, sorted_set, |measured| measured.redis_us));
    }
    if let (Some(unbatched), Some(sorted_set)) = (unbatched, sorted_set) {
        let cpu = |variant: &Variant| variant.median(2, |measured| measured.redis_us);
        report.ratio("redis_256_cpu_unbatched_vs_sorted_set", cpu(unbatched) / cpu(sorted_set));
    }
}

/// Decisions per second at the highest level, as SVG.
pub fn chart(variants: &[Variant], redis_version: &str) -> String {
    let level = LEVELS.len() - 1;
    let bar = |variant: &Variant| Bar {
        label: variant.contender.name().to_owned(),
        value: variant.per_second(level),
        highlighted: variant.contender.name().starts_with("tollgate"),
    };
    let shown = variants.iter().filter(|variant| variant.contender != Contender::Direct);
    let mut bars: Vec<Bar> = shown.map(bar).collect();
    bars.sort_by(|one, other| other.value.total_cmp(&one.value));
    let subtitle = format!(
        "{} requests in flight, {KEYS} keys, one Redis {redis_version} and client on one machine",
        LEVELS[level]
    );
    bar_chart("Decisions per second through Redis", &subtitle, &bars)
}
