//! Numbers that are the same for the same seed (splitmix64).

#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// An index, each as often as its weight says.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        weights.iter().position(|&weight| left.checked_sub(weight).map(|rest| left = rest).is_none()).unwrap()
    }

    /// Breaks a text that was right: a few bytes, those that have a meaning most of all.
    pub(crate) fn damage(&mut self, text: &mut Vec<u8>) {
        const SIGNS: &[u8] = b",,;;==\"\"\\\\[]::._%-/ \t\xff\xc3\xa90x";
        for _ in 0..=self.below(3) {
            let at = self.below(text.len() + 1);
            match self.below(6) {
                0 => text.truncate(at),
                1 if at < text.len() => drop(text.remove(at)),
                2 if at < text.len() => text[at] = self.pick(SIGNS),
                3 if at < text.len() => text[at] = self.next() as u8,
                4 => {
                    // A piece of it once more, somewhere else.
                    let end = at + self.below(text.len() - at + 1);
                    let piece = text[at..end].to_vec();
                    let to = self.below(text.len() + 1);
                    text.splice(to..to, piece);
                }
                _ => text.insert(at, self.pick(SIGNS)),
            }
        }
    }
}
