//! Medians, percentiles, and the execution times that Redis reports.

use redis::ConnectionLike;

use crate::Result;

/// The median, or the higher of the two middle values; 0 for an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The value at `share` (0.5, 0.99) of an ascending list.
pub fn percentile(sorted: &[u32], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default().into()
}

/// Resets the server's command statistics.
pub fn reset_commandstats(connection: &mut dyn ConnectionLike) -> Result<()> {
    redis::cmd("CONFIG").arg("RESETSTAT").exec(connection)?;
    Ok(())
}

/// Calls and execution time of the limiters' commands since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandStats {
    pub calls: u64,
    pub usec: u64,
}

/// The commands that limiters send. Commands called by a script are left out: the script's time includes them.
const SENT: [&str; 5] = ["evalsha", "eval", "ping", "cl.throttle", "script|load"];

impl CommandStats {
    /// Microseconds of execution per decision; not a number if the server got no command of a limiter.
    pub fn us_per_decision(self, decisions: u64) -> f64 {
        if self.calls == 0 { f64::NAN } else { self.usec as f64 / decisions as f64 }
    }

    pub fn read(connection: &mut dyn ConnectionLike) -> Result<Self> {
        let info: String = redis::cmd("INFO").arg("commandstats").query(connection)?;
        let mut stats = Self::default();
        for line in info.lines() {
            let Some((name, figures)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':')) else {
                continue;
            };
            if SENT.contains(&name.to_ascii_lowercase().as_str()) {
                stats.calls += field(figures, "calls=")?;
                stats.usec += field(figures, "usec=")?;
            }
        }
        Ok(stats)
    }
}

/// The CPU time of the server's main thread.
#[derive(Clone, Copy, Debug)]
pub struct CpuTime {
    us: f64,
}

impl CpuTime {
    pub fn read(connection: &mut dyn ConnectionLike) -> Result<Self> {
        let info: String = redis::cmd("INFO").arg("cpu").query(connection)?;
        let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok());
        let user = of("used_cpu_user_main_thread:").ok_or("INFO cpu has no time of the main thread")?;
        let system = of("used_cpu_sys_main_thread:").ok_or("INFO cpu has no time of the main thread")?;
        Ok(Self { us: (user + system) * 1e6 })
    }

    pub fn us_since(self, earlier: Self) -> f64 {
        self.us - earlier.us
    }
}

fn field(figures: &str, name: &str) -> Result<u64> {
    let value = figures.split(',').find_map(|figure| figure.strip_prefix(name));
    Ok(value.ok_or_else(|| format!("INFO commandstats has no field {name}"))?.parse()?)
}
