//! What a generator has counted and measured.

use crate::stats::{median, percentile};

#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    pub ok: u64,
    pub denied: u64,
    /// Other statuses, and requests without a response.
    pub failed: u64,
    pub per_second: f64,
    pub latency: Latency,
}

/// In microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

impl Latency {
    /// Of any order of times, in microseconds.
    pub fn of(mut times: Vec<u32>) -> Self {
        times.sort_unstable();
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| percentile(&times, share));
        Self { p50, p99, p999 }
    }

    /// The median of each figure.
    pub fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure).collect());
        Self { p50: of(|round| round.p50), p99: of(|round| round.p99), p999: of(|round| round.p999) }
    }
}
