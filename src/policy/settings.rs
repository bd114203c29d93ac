//! The optional settings of a policy.

use std::time::Duration;

use crate::policy::definition::{Special, is_token};
use crate::policy::{Algorithm, micros_up};
use crate::{key::partition::PartitionKeys, policy::limit::Policy};

impl Policy {
    /// Sets the algorithm.
    ///
    /// Defaults to [`Algorithm::SlidingWindowLog`], because it is exact. It is a [mistake](Self#mistakes) if the policy
    /// has a [resolution](Self::with_resolution) or a [burst](Self::with_burst) that belongs to another algorithm.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Algorithm, Policy};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policy =
    ///     Policy::per_day("daily", 10_000)?.with_algorithm(Algorithm::FixedWindow);
    /// assert_eq!(policy.algorithm(), Algorithm::FixedWindow);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_algorithm(self, algorithm: Algorithm) -> Self {
        self.change(|d| d.algorithm = algorithm)
    }

    /// Bounds the memory of the log: the times of records are rounded up to `resolution`, so that at most `window /
    /// resolution + 2` records count, whatever the limit. A store may keep records that have left the window a little
    /// longer.
    ///
    /// The log still never admits more than the limit; units come back at most one resolution late. Defaults to 1 µs,
    /// which is exact. Redis limits a value to 512 MB unless configured otherwise, so the log of one key holds about 33
    /// million requests. Set a resolution where more may be in a window.
    ///
    /// It is a [mistake](Self#mistakes) if the algorithm is not the log, or the resolution is shorter than 1 µs or
    /// longer than the window.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let daily = Policy::per_day("daily", 1_000_000)?
    ///     .with_resolution(Duration::from_secs(86));
    /// assert_eq!(daily.resolution(), Some(Duration::from_secs(86)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_resolution(self, resolution: Duration) -> Self {
        let window = self.window_length();
        if resolution < Duration::from_micros(1) || resolution > window {
            return self.mistaken(format_args!(
                "a resolution of {resolution:?} is out of range; use 1 µs up to the window, {window:?}"
            ));
        }
        self.change(|d| d.resolution_us = Special::set(micros_up(resolution)))
    }

    /// Sets the number of units in a full token bucket.
    ///
    /// Defaults to the limit, so that an idle client may spend the units of a whole window at once.
    ///
    /// It is a [mistake](Self#mistakes) if the algorithm is not the token bucket, if the burst is 0, smaller than the
    /// number of [shards](Self::with_shards) or above [`MAX_LIMIT`](Self::MAX_LIMIT), or if refilling it takes longer
    /// than [`MAX_WINDOW`](Self::MAX_WINDOW).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Algorithm, Policy};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let rate = Policy::per_second("rate", 100)?
    ///     .with_algorithm(Algorithm::TokenBucket)
    ///     .with_burst(20);
    /// assert_eq!(rate.capacity(), 20);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_burst(self, burst: u64) -> Self {
        if burst == 0 {
            return self.mistaken("a burst of 0 lets nothing through; use 1 or more");
        }
        if burst > Self::MAX_LIMIT {
            let most = Self::MAX_LIMIT;
            return self.mistaken(format_args!("a burst of {burst} is too large; use at most {most}, which is 2^40"));
        }
        self.change(|d| d.burst = Special::set(burst))
    }

    /// Sets whether denied requests are counted, so that a client that does not wait stays limited.
    ///
    /// A cost above the limit is never counted, and neither is a peek. A token bucket is emptied but never goes into
    /// debt. With [shards](Self::with_shards), the shard that was asked counts a denial. Has no meaning for a
    /// [concurrency limit](Self::concurrent). Defaults to `false`, because a client that waits for Retry-After should
    /// pass.
    ///
    /// `true` is a [mistake](Self#mistakes) if the policy has [holds](Self::with_holds) or a [lease](Self::with_lease).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let login = Policy::per_minute("login", 5)?.with_denials_counted(true);
    /// # let _ = login;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_denials_counted(self, denials_counted: bool) -> Self {
        if self.is_concurrent() {
            return self;
        }
        self.change(|d| d.denials_counted = denials_counted)
    }

    /// Sets the unit that clients see: `qu` in `RateLimit-Policy` of [`HeaderStyle::Draft11`](crate::HeaderStyle).
    ///
    /// The draft defines `requests`, `content-bytes` and `concurrent-requests`. The unit does not change how many units
    /// a request costs: the layer's cost does. Defaults to `requests`, which is not sent, because it is also the
    /// default of the draft.
    ///
    /// It is a [mistake](Self#mistakes) if the unit is not usable as a Structured Field String and Token (RFC 9651).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let uploads =
    ///     Policy::per_hour("uploads", 100 << 20)?.with_unit("content-bytes");
    /// assert_eq!(uploads.unit(), Some("content-bytes"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_unit(self, unit: impl Into<String>) -> Self {
        let unit = unit.into();
        if !is_token(&unit) {
            return self.mistaken(format_args!(
                "unit {unit:?} is not usable in a header; write \"content-bytes\", \"concurrent-requests\" or the \
                 like, a letter and then letters, digits or dashes"
            ));
        }
        let unit = (unit != "requests").then(|| unit.into_boxed_str());
        self.change(|d| d.unit = unit)
    }

    /// Discloses to clients which partition a request was counted in: `pk` in both fields of
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle).
    ///
    /// Defaults to no disclosure, because most clients have one partition, and `pk` makes them recognisable.
    ///
    /// # Examples
    ///
    /// See [`PartitionKeys`].
    #[must_use]
    pub fn with_partition_keys(self, keys: PartitionKeys) -> Self {
        self.change(|d| d.partition_keys = Some(keys))
    }
}

impl Policy {
    /// This policy as one that counts whatever it is asked to charge, also beyond the limit. A concurrency limit stays
    /// as it is.
    pub(crate) fn counting_everything(&self) -> Self {
        if self.is_concurrent() {
            return self.clone();
        }
        self.clone()
            .change(|d| (d.denials_counted, d.ban, d.longest_ban_us, d.holds, d.lease) = (true, None, None, None, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ConfigError;

    #[test]
    fn wrong_policies_are_errors_that_contain_the_value() {
        for name in ["", "a b", "café", "1st", "say \"hi\"", &"x".repeat(65)] {
            let error = Policy::per_second(name, 1).unwrap_err();
            let expected = format!("policy name {name:?} is not usable in a header: ");
            assert!(error.to_string().starts_with(&expected), "{error}");
            assert_eq!(error.policy_name(), None);
        }
        for name in ["*all", "*", "a*b:c/d"] {
            assert_eq!(Policy::per_second(name, 1).unwrap().name(), name, "a Token (RFC 9651, section 3.3.4)");
        }
        let message = |result: Result<Policy, ConfigError>| {
            let error = result.unwrap_err();
            assert_eq!(error.policy_name(), Some("p"));
            error.to_string()
        };
        let zero = message(Policy::per_second("p", 0));
        assert_eq!(zero, "policy \"p\": a limit of 0 lets nothing through; use 1 or more");
        assert_eq!(Policy::per_second("p", Policy::MAX_LIMIT).unwrap().limit(), 1_099_511_627_776);
        for limit in [Policy::MAX_LIMIT + 1, u64::MAX] {
            let expected =
                format!("policy \"p\": a limit of {limit} is too large; use at most 1099511627776, which is 2^40");
            assert_eq!(message(Policy::per_second("p", limit)), expected);
        }
        for window in [Duration::ZERO, Duration::from_nanos(999)] {
            let expected = format!("policy \"p\": a window of {window:?} is too short; use at least 1 µs");
            assert_eq!(message(Policy::new("p", 1, window)), expected);
        }
        for window in [Duration::MAX, Policy::MAX_WINDOW + Duration::from_nanos(1)] {
            let expected = format!("policy \"p\": a window of {window:?} is too long; use at most 366 days");
            assert_eq!(message(Policy::new("p", 1, window)), expected);
        }
    }

    #[test]
    fn resolution_and_burst_belong_to_their_algorithms() {
        fn says(policy: Policy, expected: &str) {
            let error = policy.validated().unwrap_err().to_string();
            assert!(error.starts_with(&format!("policy \"p\": {expected}; ")), "{error}");
        }
        let policy = Policy::per_second("p", 10).unwrap();
        assert_eq!((policy.resolution(), policy.burst()), (Some(Duration::from_micros(1)), None));
        let coarse = policy.clone().with_resolution(Duration::from_millis(20));
        assert_eq!(coarse.resolution(), Some(Duration::from_millis(20)));
        says(policy.clone().with_burst(5), "only a token bucket has a burst");
        for resolution in [Duration::ZERO, Duration::from_millis(1001)] {
            let expected = format!("a resolution of {resolution:?} is out of range");
            says(policy.clone().with_resolution(resolution), &expected);
        }
        let bucket = policy.with_algorithm(Algorithm::TokenBucket);
        says(bucket.clone().with_burst(0), "a burst of 0 lets nothing through");
        says(bucket.clone().with_burst(Policy::MAX_LIMIT + 1), "a burst of 1099511627777 is too large");
        let yearly = Policy::new("p", 1, Policy::MAX_WINDOW).unwrap().with_algorithm(Algorithm::TokenBucket);
        says(yearly.with_burst(2), "a burst of 2 takes more than 366 days to refill");
        assert_eq!((bucket.resolution(), bucket.burst()), (None, Some(10)));
        let small = bucket.clone().with_burst(7);
        assert_eq!((small.burst(), small.capacity()), (Some(7), 7));
        let resolution = bucket.with_resolution(Duration::from_millis(1));
        says(resolution, "only the sliding window log has a resolution");
    }
}
