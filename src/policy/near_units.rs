//! The number of spent units at which a key is near its limit.

/// The default of [`Policy::near_limit`].
pub(super) const NEAR_LIMIT: f64 = 0.8;

/// The smallest number of spent units that is at least `share` of `capacity`, and at least 1. Without a share, a number
/// that no key can spend.
///
/// The product of 0.55 and 100 is a little above 55 as a float. The difference of one rounding is left out.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the product is between 0 and the capacity, which is at most `Policy::MAX_LIMIT`"
)]
pub(super) fn near_units(share: Option<f64>, capacity: u64) -> u64 {
    share.map_or(u64::MAX, |share| {
        let units = capacity as f64 * share;
        ((units - units * f64::EPSILON).ceil() as u64).max(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn a_share_is_the_smallest_number_of_units_that_is_not_below_it() {
        for percent in 1..=100_u32 {
            assert_eq!(near_units(Some(f64::from(percent) / 100.0), 100), u64::from(percent), "{percent} %");
        }
        assert_eq!(near_units(Some(0.8), 3), 3, "2.4 units");
        assert_eq!(near_units(Some(0.01), 10), 1);
        assert_eq!(near_units(Some(1.0), Policy::MAX_LIMIT), Policy::MAX_LIMIT);
        assert_eq!(near_units(None, Policy::MAX_LIMIT), u64::MAX);
    }
}
