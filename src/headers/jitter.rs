//! The random time that is added to a wait.

use std::time::Duration;

use super::{duration::whole_seconds, quota::QuotaReport};
use crate::runtime::random;

/// The longest wait that the fields of a response contain.
pub(super) fn longest_wait<'a>(quotas: impl Iterator<Item = QuotaReport<'a>>, allowed: bool) -> Option<Duration> {
    let wait = |quota: QuotaReport<'a>| match allowed {
        true => quota.next.filter(|_| quota.remaining == 0),
        false => quota.retry_after.filter(|_| quota.violated),
    };
    quotas.filter_map(wait).max()
}

/// Draws the jitter of a wait: a whole number of seconds, because fields contain whole seconds, at most `most` and at
/// most the wait rounded up.
pub(super) fn draw(wait: Duration, most: u32) -> Duration {
    Duration::from_secs(scale(whole_seconds(wait).min(most.into()), random::number()))
}

/// Maps a random 64-bit number to 0..=`most`. All results are equally likely.
fn scale(most: u64, random: u64) -> u64 {
    let scaled = ((u128::from(most) + 1) * u128::from(random)) >> 64;
    u64::try_from(scaled).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_covers_zero_to_the_maximum() {
        for (most, random, expected) in
            [(10, 0, 0), (10, 1 << 63, 5), (10, u64::MAX, 10), (0, u64::MAX, 0), (u64::MAX, u64::MAX, u64::MAX)]
        {
            assert_eq!(scale(most, random), expected);
        }
    }

    #[test]
    fn no_wait_is_more_than_doubled() {
        for (wait, most, all) in [(400, 60, 0..=1), (1_000, 60, 0..=1), (3_001, 60, 0..=4), (9_000, 2, 0..=2)] {
            let drawn: Vec<u64> = (0..1_000).map(|_| draw(Duration::from_millis(wait), most).as_secs()).collect();
            assert!(drawn.iter().all(|drawn| all.contains(drawn)), "{wait} ms");
            assert!(all.clone().all(|second| drawn.contains(&second)), "{wait} ms");
        }
    }
}
