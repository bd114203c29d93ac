//! The tables of `docs/performance.md`, between two marks.

use std::{fmt::Write, fs, process::Command};

use super::latency::{Curve, Rates};
use super::{bench::Bench, outcome::Latency, site::Variant};
use crate::Result;

const BEGIN: &str = "<!-- The lines to the next mark are written by benches/load. -->\n";
const END: &str = "<!-- End of the lines that are written by benches/load. -->\n";

pub fn write(path: &str, bench: &Bench<'_>, curves: &[Curve], rates: &[Rates]) -> Result<()> {
    let page = fs::read_to_string(path)?;
    let lines = format!("{}\n{}\n{}\n", head(bench)?, latencies(curves), closed_loop(rates));
    let marked = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = marked.ok_or_else(|| format!("{path} has no marks: {BEGIN}{END}"))?;
    fs::write(path, format!("{before}{BEGIN}\n{lines}{END}{after}"))?;
    Ok(())
}

/// The date, the commit and the versions.
fn head(bench: &Bench<'_>) -> Result<String> {
    let generators = bench.programs.installed.iter().map(|(tool, version)| format!("{} {version}", tool.name()));
    let generators: Vec<String> = generators.collect();
    let (date, commit) = (output("date", &["-u", "+%F"])?, output("git", &["rev-parse", "--short=8", "HEAD"])?);
    Ok(format!(
        "Measured on {date} at commit `{commit}` with Redis {} and:\n{}.\n",
        bench.redis.version()?,
        generators.join(", ")
    ))
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn latencies(curves: &[Curve]) -> String {
    let mut table = "| ms at p50, p99, p99.9 | limits | capacity |".to_owned();
    let shares: Vec<u32> =
        curves.first().into_iter().flat_map(|curve| &curve.points).map(|point| point.share).collect();
    // Writing to a String never fails.
    for share in &shares {
        let _ = write!(table, " {share} % |");
    }
    table += "\n| --- | --- | --- |";
    table += &" --- |".repeat(shares.len());
    for curve in curves {
        let _ = write!(
            table,
            "\n| {} | {} | {}/s |",
            curve.protocol.name(),
            curve.variant.name(),
            thousands(curve.capacity)
        );
        for point in &curve.points {
            let Latency { p50, p99, p999 } = point.latency;
            let note = if point.is_short_of(curve.capacity) { " (rate not reached)" } else { "" };
            let _ = write!(table, " {}, {}, {}{note} |", milliseconds(p50), milliseconds(p99), milliseconds(p999));
        }
    }
    table + "\n"
}

fn closed_loop(rates: &[Rates]) -> String {
    let mut table = "| requests/s by | over |".to_owned();
    for variant in Variant::ALL {
        let _ = write!(table, " {} |", variant.name());
    }
    table += "\n| --- | --- | --- | --- | --- |";
    for Rates { tool, protocol, per_second } in rates {
        let _ = write!(table, "\n| {} | {} |", tool.name(), protocol.name());
        for rate in per_second {
            let part = rate / per_second[0] * 100.0;
            let _ = write!(
                table,
                " {}{} |",
                thousands(*rate),
                if part == 100.0 { String::new() } else { format!(", {part:.0} %") }
            );
        }
    }
    table + "\n"
}

fn thousands(rate: f64) -> String {
    format!("{:.1} k", rate / 1e3)
}

/// Two digits, because the figures are no more precise.
fn milliseconds(us: f64) -> String {
    let ms = us / 1e3;
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
}
