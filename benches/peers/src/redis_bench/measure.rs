//! Measures all limiters at each number of checks in flight, in interleaved rounds.

use std::time::Duration;

use redis::Connection;

use super::load::{Load, Slice};
use super::{LEVELS, contender::Contender, servers::Endpoints};
use crate::stats::{self, CommandStats, median};
use crate::{ROUNDS, Result, report::Report};

/// A connected limiter and its results.
pub struct Variant {
    pub contender: Contender,
    load: Box<dyn Load>,
    /// The measured slices of each level.
    pub slices: [Vec<Measured>; LEVELS.len()],
}

#[derive(Clone, Copy)]
pub struct Measured {
    pub slice: Slice,
    /// Microseconds of execution in Redis per decision; not a number if Redis got no command.
    pub redis_us: f64,
}

/// Connects the limiters and loads their scripts with a short run. Leaves out those that fail.
pub async fn connect(
    contenders: &[Contender],
    endpoints: &Endpoints,
    keys: &'static [String],
    report: &mut Report,
) -> Vec<Variant> {
    let mut variants = Vec::new();
    for &contender in contenders {
        if !contender.is_available(endpoints) {
            continue;
        }
        let connected = async {
            let load = contender.connect(endpoints).await?;
            load.run(keys, 16, Duration::from_millis(100)).await?;
            Result::Ok(Variant { contender, load, slices: Default::default() })
        };
        match connected.await {
            Ok(variant) => variants.push(variant),
            Err(error) => report.leave_out(contender.name(), error),
        }
    }
    variants
}

/// `admin` reads the execution times of the Redis that the variants use.
pub async fn measure(
    variants: &mut [Variant],
    keys: &'static [String],
    admin: &mut Connection,
    slice: Duration,
    report: &mut Report,
) -> Result<()> {
    for (level, in_flight) in LEVELS.into_iter().enumerate() {
        for _ in 0..ROUNDS {
            for variant in &mut *variants {
                stats::reset_commandstats(admin)?;
                match variant.load.run(keys, in_flight, slice).await {
                    Ok(slice) => {
                        let redis_us = CommandStats::read(admin)?.us_per_decision(slice.decisions);
                        variant.slices[level].push(Measured { slice, redis_us });
                    }
                    Err(error) => report.leave_out(&format!("{}, one round", variant.contender.name()), error),
                }
            }
        }
    }
    Ok(())
}

impl Variant {
    pub fn median(&self, level: usize, field: impl Fn(&Measured) -> f64) -> f64 {
        median(self.slices[level].iter().map(field).collect())
    }

    pub fn per_second(&self, level: usize) -> f64 {
        self.median(level, |measured| measured.slice.per_second)
    }
}
