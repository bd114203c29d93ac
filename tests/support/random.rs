//! Random numbers from a seed (SplitMix64), so that every failure can be repeated.

/// A generator that returns the same numbers for the same seed.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// An index into something of `length` elements.
    pub fn index(&mut self, length: usize) -> usize {
        (self.next() % length as u64) as usize
    }

    /// A cost from 1 to `limit`.
    pub fn cost(&mut self, limit: u64) -> u64 {
        1 + self.below(limit)
    }

    /// True with a probability of one in `chance`.
    pub fn one_in(&mut self, chance: usize) -> bool {
        self.index(chance) == 0
    }

    /// One of the elements.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// An index, with a probability in proportion to its weight.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.index(weights.iter().sum());
        weights.iter().position(|&weight| left.checked_sub(weight).map(|rest| left = rest).is_none()).unwrap()
    }
}
