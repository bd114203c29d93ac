//! Load: so many tasks, each with one check at a time, over keys drawn at random.

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{Result, random::Random, stats::percentile};

/// Something that decides, and where it counts.
pub trait Checker: Clone + Send + Sync + 'static {
    /// Whether one unit for this key was allowed.
    fn check(&mut self, key: &str) -> impl Future<Output = Result<bool>> + Send;
}

/// What one slice has found.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub decisions: u64,
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The share of allowed checks.
    pub allowed: f64,
}

/// A checker of any type, called through a pointer once a slice, never once a check.
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
    let (mut waits, mut allowed) = (Vec::new(), 0);
    while let Some(result) = tasks.join_next().await {
        let (own_waits, own_allowed) = result??;
        waits.extend(own_waits);
        allowed += own_allowed;
    }
    let elapsed = start.elapsed().as_secs_f64();
    waits.sort_unstable();
    let decisions = waits.len() as u64;
    Ok(Slice {
        decisions,
        per_second: decisions as f64 / elapsed,
        p50_us: percentile(&waits, 0.5) / 1e3,
        p99_us: percentile(&waits, 0.99) / 1e3,
        allowed: allowed as f64 / decisions.max(1) as f64,
    })
}

/// Checks one after the other; returns the waits in nanoseconds, and how many checks were allowed.
async fn client<C: Checker>(
    mut checker: C,
    keys: &'static [String],
    mut random: Random,
    until: Instant,
) -> Result<(Vec<u32>, u64)> {
    let (mut waits, mut allowed) = (Vec::new(), 0);
    let mut sent = Instant::now();
    loop {
        allowed += u64::from(checker.check(&keys[random.below(keys.len())]).await?);
        let now = Instant::now();
        waits.push(u32::try_from((now - sent).as_nanos()).unwrap_or(u32::MAX));
        if now >= until {
            return Ok((waits, allowed));
        }
        sent = now;
    }
}
