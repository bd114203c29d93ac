//! The keys of a load: one, or many, evenly or by Zipf's law.

use crate::random::Random;

pub(super) struct Keys {
    /// For each key, the share of the checks of this key and of those before it, of `u32::MAX`. Empty for even loads.
    shares: Vec<u32>,
    count: u64,
}

impl Keys {
    /// `count` keys. The key of rank `k` is checked in proportion to `1 / k ^ exponent`.
    pub(super) fn new(count: u64, exponent: f64) -> Self {
        let weight = |rank: u64| (rank as f64).powf(-exponent);
        let total: f64 = (1..=count).map(weight).sum();
        let mut sum = 0.0;
        let mut share = |rank| {
            sum += weight(rank);
            (sum / total * f64::from(u32::MAX)) as u32
        };
        Self { shares: if exponent > 0.0 { (1..=count).map(&mut share).collect() } else { Vec::new() }, count }
    }

    pub(super) fn next(&self, random: &mut Random) -> u64 {
        if self.shares.is_empty() {
            return random.below(self.count as usize) as u64;
        }
        let at = random.below(u32::MAX as usize) as u32;
        self.shares.partition_point(|share| *share < at) as u64
    }
}
