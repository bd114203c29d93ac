//! tollgate's Redis store over a simulated network round trip, with batching and without.

use std::{fs, time::Duration};

use serde_json::json;
use tollgate::Algorithm;

use crate::redis_bench::{Load, QUOTA, Setup, Slice, TollgateLimiter, keys};
use crate::svg::{AMBER, Axis, BLUE, GREEN, Line, Panel, RED, Stroke, panels};
use crate::{ROUNDS, Result, args::Args, report::Report, server::Server, stats::median};

const ROUND_TRIPS_MS: [u64; 4] = [0, 1, 5, 20];
const LEVELS: [usize; 4] = [1, 16, 256, 1_000];
const BATCHED: &str = "batched";

pub fn run(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let keys: &'static [String] = keys(10_000).leak();
    let slice = Duration::from_secs_f64(args.seconds) / ROUNDS;
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for (milliseconds, colour) in ROUND_TRIPS_MS.into_iter().zip([GREEN, BLUE, AMBER, RED]) {
        let endpoint =
            if milliseconds == 0 { server.endpoint() } else { server.behind(Duration::from_millis(milliseconds)) };
        let variants = [(BATCHED, true), ("unbatched", false)].map(|(name, batching)| {
            let setup = Setup { prefix: "net:", algorithm: Algorithm::SlidingWindowLog, batching };
            TollgateLimiter::new(&endpoint, setup, QUOTA).map(|limiter| (name, limiter))
        });
        let variants = variants.into_iter().collect::<Result<Vec<_>>>()?;
        let (mut medians, mut tails) = (Vec::new(), Vec::new());
        for in_flight in LEVELS {
            let mut slices: Vec<Vec<Slice>> = vec![Vec::new(); variants.len()];
            for _ in 0..ROUNDS {
                for ((_, limiter), slices) in variants.iter().zip(&mut slices) {
                    slices.push(runtime.block_on(limiter.run(keys, in_flight, slice))?);
                }
            }
            for ((name, _), slices) in variants.iter().zip(&slices) {
                let of = |figure: fn(&Slice) -> f64| median(slices.iter().map(figure).collect());
                let (per_second, p50_us, p99_us) =
                    (of(|slice| slice.per_second), of(|slice| slice.p50_us), of(|slice| slice.p99_us));
                println!(
                    "round trip {milliseconds:>2} ms  {in_flight:>5} in flight  {name:<10} {per_second:>8.0}/s  \
                     p50 {p50_us:>7.0} us  p99 {p99_us:>7.0} us"
                );
                if *name == BATCHED {
                    medians.push((in_flight as f64, p50_us / 1e3));
                    tails.push((in_flight as f64, p99_us / 1e3));
                }
                report.figure(json!({
                    "round_trip_ms": milliseconds, "in_flight": in_flight, "variant": name,
                    "per_second": per_second, "p50_us": p50_us, "p99_us": p99_us,
                }));
            }
        }
        for (lines, points) in [(&mut p50, medians), (&mut p99, tails)] {
            let label = if milliseconds == 0 { "0.1 ms, one machine".to_owned() } else { format!("{milliseconds} ms") };
            lines.push(Line { label, colour, stroke: Stroke::Solid, is_marked: true, points });
        }
    }
    if let Some(path) = &args.svg {
        let subtitle = format!(
            "10 000 keys, exact log, a line for each round trip; Redis {} and client on one machine",
            server.version()?
        );
        fs::write(path, panels("Latency of a check against load", &subtitle, &[panel("p50", p50), panel("p99", p99)]))?;
    }
    Ok(())
}

/// Milliseconds against checks in flight, with a line for each round trip.
fn panel(title: &str, lines: Vec<Line>) -> Panel {
    Panel {
        title: title.to_owned(),
        x: Axis {
            title: "checks in flight",
            ticks: LEVELS.map(|level| (level as f64, level.to_string())).to_vec(),
            is_logarithmic: true,
        },
        y: Axis {
            title: "milliseconds",
            ticks: [0.01, 0.1, 1.0, 10.0, 100.0].map(|at| (at, at.to_string())).to_vec(),
            is_logarithmic: true,
        },
        lines,
        background: Vec::new(),
        strip: Vec::new(),
    }
}
