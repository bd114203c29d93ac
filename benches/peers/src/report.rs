//! What a run has found: figures as JSON, ratios as lines.

use std::fs;

use serde_json::{Map, Value, json};

use crate::{Result, args::Args};

#[derive(Debug, Default)]
pub struct Report {
    figures: Vec<Value>,
    ratios: Map<String, Value>,
    left_out: Vec<String>,
}

impl Report {
    /// Keeps one measurement with everything that was measured.
    pub fn figure(&mut self, figure: Value) {
        self.figures.push(figure);
    }

    /// Keeps a ratio (ours over theirs), or a figure that a budget names.
    pub fn ratio(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            // Four digits are more than the measurement has.
            let rounded = format!("{value:.3e}").parse::<f64>().unwrap_or(value);
            self.ratios.insert(name.to_owned(), json!(rounded));
        }
    }

    /// Says that a peer is left out.
    pub fn leave_out(&mut self, peer: &str, reason: impl std::fmt::Display) {
        println!("left out: {peer}: {reason}");
        self.left_out.push(format!("{peer}: {reason}"));
    }

    /// Prints the ratios and writes the file, if one is wanted.
    pub fn finish(self, args: &Args, redis_version: Option<String>) -> Result<()> {
        println!();
        for (name, value) in &self.ratios {
            println!("ratio {name} {value}");
        }
        let Some(path) = &args.json else { return Ok(()) };
        let report = json!({
            "mode": args.mode.name(),
            "machine": machine(redis_version),
            "seconds": args.seconds,
            "figures": self.figures,
            "left_out": self.left_out,
            "ratios": self.ratios,
        });
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
        Ok(())
    }
}

fn machine(redis_version: Option<String>) -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "cpu": cpu.map_or("unknown", |(_, model)| model.trim()),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "redis": redis_version,
    })
}
