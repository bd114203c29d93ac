//! What is wrong with the settings of a policy: one by one, and with each other.

use std::{fmt, time::Duration};

use crate::error::{ConfigError, FirstMistake};
use crate::policy::{Algorithm, definition::Definition, limit::Policy};

/// The most shards of a policy: a peek asks all of them in one check.
pub(super) const MAX_SHARDS: u32 = 64;

impl Policy {
    /// Returns the policy, or the first mistake in its settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: what is wrong, and what to write instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Algorithm, Policy};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let rate = Policy::per_second("rate", 100)?
    ///     .with_burst(20)
    ///     .with_algorithm(Algorithm::TokenBucket)
    ///     .validated()?;
    ///
    /// let error =
    ///     rate.with_algorithm(Algorithm::FixedWindow).validated().unwrap_err();
    /// println!("{error}"); // says that only a token bucket has a burst
    /// # Ok(())
    /// # }
    /// ```
    pub fn validated(self) -> Result<Self, ConfigError> {
        self.validate()?;
        Ok(self)
    }

    #[inline]
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.first_mistake().found()
    }

    /// The first mistake, for what uses the policy.
    #[inline]
    pub(crate) fn mistake(&self) -> FirstMistake {
        self.first_mistake().clone()
    }

    /// A policy whose new setting is wrong, whatever the other settings are.
    pub(super) fn mistaken(self, message: impl fmt::Display) -> Self {
        let mistake = ConfigError::of_policy(self.name(), message);
        self.change(|d| d.mistake.add(mistake))
    }
}

impl Definition {
    /// What is wrong: one setting by itself, and then settings that do not fit together. Judged as a whole, so that the
    /// order of the setters does not matter.
    pub(super) fn mistakes(&self) -> Vec<ConfigError> {
        let misfits = [
            self.setting_of_blocked(),
            self.algorithm_of_calendar(),
            self.resolution_without_log(),
            self.burst_without_bucket(),
            self.shards_above_burst(),
            self.slow_bucket(),
            self.ban_with_shards(),
            self.growth_of_ban(),
            self.excluded_by_holds(),
            self.lease_above_capacity(),
        ];
        self.mistake.found().err().into_iter().chain(misfits.into_iter().flatten()).collect()
    }

    fn algorithm_of_calendar(&self) -> Option<ConfigError> {
        (self.calendar.is_some() && self.algorithm != Algorithm::FixedWindow).then(|| {
            let message = "the windows of a calendar are counted as fixed windows; leave out `.with_algorithm(..)`";
            ConfigError::of_policy(&self.name, message)
        })
    }

    fn resolution_without_log(&self) -> Option<ConfigError> {
        let is_wrong = self.resolution_us.is_set && self.algorithm != Algorithm::SlidingWindowLog;
        is_wrong.then(|| {
            let message = "only the sliding window log has a resolution; leave out `.with_resolution(..)` or the other \
                           algorithm";
            ConfigError::of_policy(&self.name, message)
        })
    }

    fn burst_without_bucket(&self) -> Option<ConfigError> {
        let is_wrong = self.burst.is_set && self.algorithm != Algorithm::TokenBucket;
        is_wrong.then(|| {
            let message = "only a token bucket has a burst; call `.with_algorithm(Algorithm::TokenBucket)`, or leave \
                           out `.with_burst(..)`";
            ConfigError::of_policy(&self.name, message)
        })
    }

    fn shards_above_burst(&self) -> Option<ConfigError> {
        (self.limit > 0 && u64::from(self.shards) > self.whole_capacity())
            .then(|| self.wrong_shards(self.shards, self.whole_capacity()))
    }

    /// The error of a number of shards that leaves a shard without a unit. `most` is the largest number.
    pub(super) fn wrong_shards(&self, shards: u32, most: u64) -> ConfigError {
        let message = format!(
            "{shards} shards are out of range; use 1 to {most}, because each shard needs a unit of the limit and of \
             the burst"
        );
        ConfigError::of_policy(&self.name, message)
    }

    /// The remainders of limit and burst differ, so a shard may take longer to fill than the whole bucket.
    fn slow_bucket(&self) -> Option<ConfigError> {
        let fill_us = |number| {
            let (burst, limit) = (self.part(self.burst.value, number), self.part(self.limit, number));
            u128::from(burst) * u128::from(self.window_us) / u128::from(limit)
        };
        let is_slow = self.limit > 0
            && self.burst.is_set
            && (0..self.shards).any(|number| fill_us(number) > Policy::MAX_WINDOW.as_micros());
        is_slow.then(|| {
            let burst = self.burst.value;
            let message = format!("a burst of {burst} takes more than 366 days to refill; use a smaller one");
            ConfigError::of_policy(&self.name, message)
        })
    }

    /// Each shard would count denials by itself.
    fn ban_with_shards(&self) -> Option<ConfigError> {
        (self.shards > 1 && self.ban.is_some()).then(|| {
            let message = "each shard would count denials by itself, so a policy has either a ban or shards; leave one \
                           of the two out";
            ConfigError::of_policy(&self.name, message)
        })
    }

    fn growth_of_ban(&self) -> Option<ConfigError> {
        let longest_us = self.longest_ban_us?;
        let message = match self.ban {
            None => "bans grow where denials lead to one; call `.ban_after(..)`, or leave out `.growing_to(..)`".into(),
            Some((_, first_us)) if longest_us < first_us => {
                let [longest, first] = [longest_us, first_us].map(Duration::from_micros);
                format!("bans of {first:?} cannot grow to {longest:?}; use {first:?} to 366 days")
            }
            Some(_) => return None,
        };
        Some(ConfigError::of_policy(&self.name, message))
    }

    /// A setting that a policy with holds, or with a lease, cannot have.
    fn excluded_by_holds(&self) -> Option<ConfigError> {
        let is_released = self.holds?.unsettled_released();
        let excludes = [
            (self.ban.is_some() && self.lease.is_some(), "ban_after"),
            (self.shards > 1, "with_shards"),
            (self.denials_counted, "with_denials_counted"),
            (is_released && self.lease.is_some(), "with_unsettled_released"),
        ];
        let (_, setting) = excludes.into_iter().find(|(is_set, _)| *is_set)?;
        let message = match self.lease {
            Some(_) => format!("`{setting}` and `with_lease` exclude each other; leave one of the two out"),
            None => format!(
                "`{setting}` and holds exclude each other; leave out `{setting}`, or what makes the holds: \
                 `with_holds` or `Policy::concurrent`"
            ),
        };
        Some(ConfigError::of_policy(&self.name, message))
    }

    fn lease_above_capacity(&self) -> Option<ConfigError> {
        let most = self.whole_capacity();
        let units = self.lease.filter(|units| *units > most)?;
        let message = format!("a lease of {units} units is out of range; use 1 to {most}, the largest block");
        Some(ConfigError::of_policy(&self.name, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::HoldSettings;

    const MINUTE: Duration = Duration::from_secs(60);

    type Setter = fn(Policy) -> Policy;

    fn policy() -> Policy {
        Policy::per_minute("p", 100).unwrap()
    }

    fn mistake(policy: Policy) -> Option<String> {
        policy.validated().err().map(|error| error.to_string())
    }

    /// Two settings that do not fit together, and what the message says of them.
    const EXCLUSIVE: [(Setter, Setter, &str); 15] = [
        (
            |p| p.with_algorithm(Algorithm::FixedWindow),
            |p| p.with_resolution(MINUTE),
            "only the sliding window log has",
        ),
        (|p| p.with_algorithm(Algorithm::FixedWindow), |p| p.with_burst(5), "only a token bucket has a burst"),
        (|p| p.with_shards(2), |p| p.with_burst(5), "only a token bucket has a burst"),
        (|p| bucket(p, 5), |p| p.with_shards(6), "6 shards are out of range; use 1 to 5, "),
        (|p| bucket(p, 5), |p| p.with_lease(6), "a lease of 6 units is out of range; use 1 to 5, "),
        (|p| p.with_shards(2), |p| p.ban_after(1, MINUTE), "each shard would count denials by itself, "),
        (|p| p.ban_after(1, 2 * MINUTE), |p| p.growing_to(MINUTE), "bans of 120s cannot grow to 60s; use 120s to 366 "),
        (|p| p.with_shards(2), |p| p.with_holds(HoldSettings::new()), "`with_shards` and holds exclude each other"),
        (
            |p| p.with_denials_counted(true),
            |p| p.with_holds(HoldSettings::new()),
            "`with_denials_counted` and holds exclude each other",
        ),
        (|p| p.with_shards(2), |p| p.with_lease(9), "`with_shards` and `with_lease` exclude each other"),
        (|p| p.ban_after(1, MINUTE), |p| p.with_lease(9), "`ban_after` and `with_lease` exclude each other"),
        (
            |p| p.with_denials_counted(true),
            |p| p.with_lease(9),
            "`with_denials_counted` and `with_lease` exclude each other",
        ),
        (
            |p| p.with_holds(released()),
            |p| p.with_lease(9),
            "`with_unsettled_released` and `with_lease` exclude each other",
        ),
        (|_| concurrent(), |p| p.with_shards(2), "`with_shards` and holds exclude each other"),
        (|_| concurrent(), |p| p.with_lease(9), "`with_unsettled_released` and `with_lease` exclude each other"),
    ];

    fn bucket(policy: Policy, burst: u64) -> Policy {
        policy.with_burst(burst).with_algorithm(Algorithm::TokenBucket)
    }

    fn released() -> HoldSettings {
        HoldSettings::new().with_unsettled_released(true)
    }

    fn concurrent() -> Policy {
        Policy::concurrent("p", 10).unwrap()
    }

    #[test]
    fn two_settings_that_exclude_each_other_are_the_same_mistake_in_both_orders() {
        for (one, other, expected) in EXCLUSIVE {
            let error = mistake(other(one(policy()))).expect(expected);
            assert!(error.starts_with(&format!("policy \"p\": {expected}")), "{error}");
            if one(policy()) != concurrent() {
                assert_eq!(mistake(one(other(policy()))), Some(error));
            }
        }
    }

    /// One setting that is wrong whatever the others are, and what the message says of it.
    const WRONG: [(Setter, &str); 12] = [
        (|p| p.with_burst(0), "a burst of 0"),
        (|p| p.with_resolution(2 * MINUTE), "a resolution of 120s"),
        (|p| p.with_shards(0), "0 shards are out of range; use 1 to 64, "),
        (|p| p.with_shards(65), "65 shards are out of range; use 1 to 64, "),
        (|p| p.with_lease(0), "a lease of 0 units"),
        (|p| p.ban_after(0, MINUTE), "a ban after 0 denials"),
        (|p| p.ban_after(1, Duration::ZERO), "a ban after 1 denials for 0ns"),
        (|p| p.growing_to(Duration::ZERO), "a longest ban of 0ns is out of range"),
        (|p| p.growing_to(Policy::MAX_WINDOW + MINUTE), "a longest ban of 31622460s is out of range"),
        (|p| p.with_holds(HoldSettings::new().with_ttl(Duration::ZERO)), "`with_ttl` of its holds is 0ns"),
        (|p| p.with_unit("a b"), "unit \"a b\""),
        (|p| p.with_near_limit(80.0), "80 is not a share"),
    ];

    #[test]
    fn the_first_of_two_mistakes_is_the_one_that_is_reported() {
        let exclusive: [(Setter, &str); 2] = [
            (|p| p.with_burst(5), "only a token bucket has a burst"),
            (|p| p.with_shards(2).ban_after(1, MINUTE), "each shard would count denials by itself"),
        ];
        for (first, expected) in WRONG.into_iter().chain(exclusive) {
            for (second, _) in WRONG.into_iter().chain(exclusive) {
                let error = mistake(second(first(policy()))).unwrap();
                assert!(error.starts_with(&format!("policy \"p\": {expected}")), "{expected}: {error}");
            }
        }
    }

    #[test]
    fn a_later_setting_can_mend_what_does_not_fit_and_nothing_else() {
        let mended = policy().with_burst(5).with_algorithm(Algorithm::TokenBucket);
        assert_eq!((mistake(mended.clone()), mended.capacity()), (None, 5));
        let ban = policy().with_shards(2).ban_after(1, MINUTE);
        assert_eq!(mistake(ban.with_shards(1)), None);
        let growing = policy().growing_to(2 * MINUTE);
        assert!(mistake(growing.clone()).unwrap().contains("call `.ban_after(..)`, or leave out `.growing_to(..)`"));
        assert_eq!(mistake(growing.ban_after(1, 2 * MINUTE)), None);
        let other = policy().with_burst(5).with_unit("a b").with_algorithm(Algorithm::TokenBucket);
        assert!(mistake(other).unwrap().contains("a b"), "the burst fits now, and the unit is still wrong");
        assert!(mistake(policy().with_unit("a b").with_unit("bytes")).is_some());
    }

    #[test]
    fn a_policy_with_a_mistake_is_none_without_it_and_can_be_read() {
        let wrong = policy().with_unit("a b");
        assert!(wrong != policy() && wrong == policy().with_unit("a b"));
        assert_eq!((wrong.unit(), wrong.limit()), (None, 100));
        let wrong = bucket(policy(), 5).with_shards(6);
        assert_eq!((wrong.shards(), wrong.capacity()), (6, 0));
        assert!(mistake(wrong.shadow().clone()).is_some(), "a shadow policy has the mistake of the policy");
    }

    #[test]
    fn a_setting_that_is_the_default_makes_no_other_policy() {
        let bucket = policy().with_algorithm(Algorithm::TokenBucket);
        assert_eq!(bucket.clone().with_burst(100), bucket);
        assert_eq!(policy().with_resolution(Duration::from_micros(1)), policy());
    }
}
