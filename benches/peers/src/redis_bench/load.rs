//! Load on a limiter: `in_flight` tasks, each with one check at a time, on keys drawn at random.

use std::time::{Duration, Instant};
use std::{future::Future, pin::Pin};

use tokio::task::JoinSet;

use crate::{Result, random::Random, scripts::Quota, stats::percentile};

/// 1 000 per minute: no key reaches the limit during the measurement.
pub const QUOTA: Quota = Quota { limit: 1_000, window_us: 60_000_000 };

/// A rate limiter under load.
pub trait Checker: Clone + Send + Sync + 'static {
    /// Charges one unit to `key`; returns whether the check was allowed.
    fn check(&mut self, key: &str) -> impl Future<Output = Result<bool>> + Send;
}

/// The results of one slice.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub decisions: u64,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The share of allowed checks.
    pub allowed: f64,
}

/// A [`Checker`] of any type. Dynamic dispatch happens once per slice, not once per check.
pub trait Load: Send + Sync {
    fn run<'a>(
        &'a self,
        keys: &'static [String],
        in_flight: usize,
        time: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Slice>> + Send + 'a>>;
}

impl<C: Checker> Load for C {
    fn run<'a>(
        &'a self,
        keys: &'static [String],
        in_flight: usize,
        time: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Slice>> + Send + 'a>> {
        Box::pin(slice(self, keys, in_flight, time))
    }
}

async fn slice<C: Checker>(checker: &C, keys: &'static [String], in_flight: usize, time: Duration) -> Result<Slice> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..in_flight {
        tasks.spawn(client(checker.clone(), keys, Random::new(task as u64), start + time));
    }
    let (mut latencies, mut allowed) = (Vec::new(), 0);
    while let Some(result) = tasks.join_next().await {
        let (task_latencies, task_allowed) = result??;
        latencies.extend(task_latencies);
        allowed += task_allowed;
    }
    let elapsed = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let decisions = latencies.len() as u64;
    Ok(Slice {
        decisions,
        per_second: decisions as f64 / elapsed,
        p50_us: percentile(&latencies, 0.5) / 1e3,
        p99_us: percentile(&latencies, 0.99) / 1e3,
        allowed: allowed as f64 / decisions.max(1) as f64,
    })
}

/// Checks one key after another. Returns the latencies in nanoseconds and the number of allowed checks.
async fn client<C: Checker>(
    mut checker: C,
    keys: &'static [String],
    mut random: Random,
    until: Instant,
) -> Result<(Vec<u32>, u64)> {
    let (mut latencies, mut allowed) = (Vec::new(), 0);
    let mut sent = Instant::now();
    loop {
        allowed += u64::from(checker.check(&keys[random.below(keys.len())]).await?);
        let now = Instant::now();
        latencies.push(u32::try_from((now - sent).as_nanos()).unwrap_or(u32::MAX));
        if now >= until {
            return Ok((latencies, allowed));
        }
        sent = now;
    }
}
