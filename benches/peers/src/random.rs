//! An xorshift64* generator: keys must be spread evenly, but need not be unpredictable.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos());
        Self((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(now) | 1)
    }

    /// A number from 0 to `bound`, exclusive.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as usize % bound
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
