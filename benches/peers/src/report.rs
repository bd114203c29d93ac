//! The results of a run: figures as JSON, ratios as printed lines.

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
    /// Adds one measurement with its parameters.
    pub fn figure(&mut self, figure: Value) {
        self.figures.push(figure);
    }

    /// Adds a ratio (tollgate over the other side), or an absolute figure that is compared with a budget.
    pub fn ratio(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            // The measurement is less precise than four significant digits.
            let rounded = format!("{value:.3e}").parse::<f64>().unwrap_or(value);
            self.ratios.insert(name.to_owned(), json!(rounded));
        }
    }

    /// Reports that a variant is not measured.
    pub fn leave_out(&mut self, variant: &str, reason: impl std::fmt::Display) {
        println!("left out: {variant}: {reason}");
        self.left_out.push(format!("{variant}: {reason}"));
    }

    /// Prints the ratios, and writes the JSON file if `--json` names one.
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
