//! Random numbers of a seed, and the values of a policy made from them.

use std::time::Duration;

/// SplitMix64, which needs no dependency and gives the same numbers everywhere.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`. Each number of digits is about equally likely, and so are the ends.
    pub(crate) fn number(&mut self, least: u64, most: u64) -> u64 {
        match self.below(16) {
            0 => least,
            1 => most,
            _ => {
                let bits = self.below(65) as u32;
                let number = self.next() & 1_u64.checked_shl(bits).map_or(u64::MAX, |end| end - 1);
                number.clamp(least, most)
            }
        }
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A time up to `most`, to the microsecond or in whole seconds.
    pub(crate) fn time(&mut self, most: Duration) -> Duration {
        let micros = self.number(0, u64::try_from(most.as_micros()).unwrap_or(u64::MAX));
        let time = Duration::from_micros(micros);
        if self.one_in(2) { Duration::from_secs(time.as_secs()) } else { time }
    }

    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(20)).map(|_| self.next() as u8).collect()
    }

    /// Any text that a String of Structured Fields can contain.
    pub(crate) fn text(&mut self) -> String {
        let length = 1 + self.below(20);
        let any = |random: &mut Self| char::from(b' ' + random.below(95) as u8);
        (0..length).map(|_| if self.one_in(4) { *self.pick(&['"', '\\', ',', ';']) } else { any(self) }).collect()
    }

    /// A Token of Structured Fields of at most `most` characters, which a policy may have as its name.
    pub(crate) fn token(&mut self, most: u64) -> String {
        const FIRST: &[u8] = b"*ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        const TAIL: &[u8] = b"!#$%&'*+-.^_`|~:/0123456789abcxyzABCXYZ";
        let length = self.number(1, most);
        let first = char::from(*self.pick(FIRST));
        [first].into_iter().chain((1..length).map(|_| char::from(*self.pick(TAIL)))).collect()
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}
