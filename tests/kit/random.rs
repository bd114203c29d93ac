//! Random numbers from a seed (SplitMix64), so that every failure can be repeated.

/// A generator that returns the same numbers for the same seed.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound - 1`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A cost from 1 to `most`.
    pub(super) fn cost(&mut self, most: u64) -> u64 {
        1 + self.below(most)
    }

    /// One of the elements.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.number() as usize % from.len()]
    }
}
