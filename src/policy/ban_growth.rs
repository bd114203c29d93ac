//! How long the next ban of a key lasts, if bans grow.

/// How bans grow: of the policy that counts denials, whose window is the first ban.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BanGrowth {
    /// The length of the longest ban, in microseconds.
    pub(crate) longest_us: u64,
    /// How long a key is free of bans at least until its last ban is forgotten, in microseconds.
    pub(crate) least_quiet_us: u64,
}

impl BanGrowth {
    /// The length of a ban of which the first would last for `first_us`, and how long it is remembered, from its start.
    /// `last_us` is the length of the last ban, unless it is forgotten.
    pub(crate) fn next_ban(self, first_us: u64, last_us: Option<u64>) -> (u64, u64) {
        let doubled_us = last_us.map_or(first_us, |last_us| last_us.saturating_mul(2));
        let length_us = doubled_us.min(self.longest_us).max(first_us);
        (length_us, length_us + length_us.max(self.least_quiet_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ban_is_twice_as_long_as_the_last_up_to_the_longest() {
        let growth = BanGrowth { longest_us: 500, least_quiet_us: 150 };
        let (mut lengths, mut last_us) = (Vec::new(), None);
        for _ in 0..5 {
            let (length_us, remembered_us) = growth.next_ban(100, last_us);
            assert_eq!(remembered_us, length_us + length_us.max(150));
            lengths.push(length_us);
            last_us = Some(length_us);
        }
        assert_eq!(lengths, [100, 200, 400, 500, 500]);
        // The numbers of another instance, which may have other settings.
        assert_eq!(growth.next_ban(100, Some(10)).0, 100);
        assert_eq!(growth.next_ban(100, Some(u64::MAX)).0, 500);
    }
}
