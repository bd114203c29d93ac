//! The settings of a policy as plain data, and the number of spent units at which a key is near its limit.

use std::{fmt, time::Duration};

use crate::policy::{Algorithm, ban_growth::BanGrowth, calendar::CalendarWindows, holds::HoldSettings};
use crate::{error::FirstMistake, key::partition::PartitionKeys};

/// All settings of a policy.
#[derive(Clone, PartialEq)]
pub(super) struct Definition {
    pub(super) name: Box<str>,
    pub(super) limit: u64,
    /// The length of the window. Of a calendar, that of the longest one.
    pub(super) window_us: u64,
    /// The windows of a calendar, whose lengths differ.
    pub(super) calendar: Option<CalendarWindows>,
    pub(super) algorithm: Algorithm,
    pub(super) resolution_us: Special<u64>,
    pub(super) burst: Special<u64>,
    pub(super) denials_counted: bool,
    /// `None` for requests, the default of the header draft.
    pub(super) unit: Option<Box<str>>,
    pub(super) partition_keys: Option<PartitionKeys>,
    /// The number of denials that lead to a ban, and the duration of the ban in microseconds.
    pub(super) ban: Option<(u32, u64)>,
    /// The length of the longest ban in microseconds, if bans grow.
    pub(super) longest_ban_us: Option<u64>,
    /// How holds are treated; `None` without holds.
    pub(super) holds: Option<HoldSettings>,
    /// Whether units are only ever held, so that nothing is charged.
    pub(super) is_concurrent: bool,
    /// The largest block of a lease; `None` without leases.
    pub(super) lease: Option<u64>,
    /// The number of counts that a key has under the policy; 1 unless the policy is divided.
    pub(super) shards: u32,
    /// Whether the policy counts another policy's denials.
    pub(super) is_ban: bool,
    /// How bans grow, if the policy counts denials that lead to bans that grow.
    pub(super) growth: Option<BanGrowth>,
    /// Whether the policy refuses nothing.
    pub(super) shadow: bool,
    /// The share of the limit at which a key is near it; `None` without the event.
    pub(super) near_limit: Option<f64>,
    /// What is wrong with one setting, whatever the others are. That setting is as it was.
    pub(super) mistake: FirstMistake,
}

/// A setting that one algorithm has. Values are equal if they have the same effect, also if one is the default.
#[derive(Clone, Copy)]
pub(super) struct Special<T> {
    pub(super) value: T,
    /// Whether the policy's author has set it, so that another algorithm is a mistake.
    pub(super) is_set: bool,
}

impl<T> Special<T> {
    pub(super) fn unset(value: T) -> Self {
        Self { value, is_set: false }
    }

    pub(super) fn set(value: T) -> Self {
        Self { value, is_set: true }
    }
}

impl<T: PartialEq> PartialEq for Special<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Definition {
    /// A definition without optional settings.
    pub(super) fn plain(name: Box<str>, limit: u64, window_us: u64) -> Self {
        Self {
            name,
            limit,
            window_us,
            calendar: None,
            algorithm: Algorithm::SlidingWindowLog,
            resolution_us: Special::unset(1),
            burst: Special::unset(limit),
            denials_counted: false,
            unit: None,
            partition_keys: None,
            ban: None,
            longest_ban_us: None,
            holds: None,
            is_concurrent: false,
            lease: None,
            shards: 1,
            is_ban: false,
            growth: None,
            shadow: false,
            near_limit: None,
            mistake: FirstMistake::NONE,
        }
    }

    /// See [`Policy::form`](super::Policy::form).
    pub(super) fn form(&self) -> (Algorithm, u64, u64) {
        (self.algorithm, self.window_us, self.resolution_us.value)
    }

    /// The definition of the policy that counts denials. No user can choose its name, because names have no
    /// parentheses.
    pub(super) fn ban_definition(&self) -> Option<Self> {
        self.ban.map(|(limit, window_us)| {
            let name = format!("{}(ban)", self.name).into_boxed_str();
            let plain = Self::plain(name, limit.into(), window_us);
            Self { is_ban: true, growth: self.ban_growth(), shadow: self.shadow, ..plain }
        })
    }

    /// The largest cost that can ever pass at once if the policy has no shards.
    pub(super) fn whole_capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket => self.burst.value,
            Algorithm::FixedWindow | Algorithm::SlidingWindowCounter | Algorithm::SlidingWindowLog => self.limit,
        }
    }

    /// The definition of one shard, counted from 0. The limits of all shards add up to the limit, and so do the bursts.
    ///
    /// No user can choose its name, because names have no parentheses. The name contains the number of shards, so
    /// another number uses other counts: a count of one number could hold more than the limit of another allows.
    pub(super) fn shard_definition(&self, number: u32) -> Self {
        Self {
            name: format!("{}(shards:{})", self.name, self.shards).into_boxed_str(),
            limit: self.part(self.limit, number),
            burst: Special { value: self.part(self.burst.value, number), ..self.burst },
            shards: 1,
            unit: None,
            partition_keys: None,
            ..self.clone()
        }
    }

    /// The units of one shard, counted from 0, of those of all shards.
    pub(super) fn part(&self, units: u64, number: u32) -> u64 {
        let shards = u64::from(self.shards);
        units / shards + u64::from(u64::from(number) < units % shards)
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            limit,
            window_us,
            calendar,
            algorithm,
            resolution_us,
            burst,
            denials_counted,
            unit,
            partition_keys,
            ban,
            longest_ban_us,
            holds,
            is_concurrent,
            lease,
            shards,
            is_ban: _,
            growth: _,
            shadow,
            near_limit,
            mistake: _,
        } = self;
        f.debug_struct("Policy")
            .field("name", name)
            .field("limit", limit)
            .field("window", &Duration::from_micros(*window_us))
            .field("calendar", &calendar.as_ref().map(CalendarWindows::text))
            .field("algorithm", algorithm)
            .field("resolution", &Duration::from_micros(resolution_us.value))
            .field("burst", &burst.value)
            .field("denials_counted", denials_counted)
            .field("unit", unit)
            .field("partition_keys", partition_keys)
            .field("ban", &ban.map(|(denials, duration_us)| (denials, Duration::from_micros(duration_us))))
            .field("growing_to", &longest_ban_us.map(Duration::from_micros))
            .field("holds", holds)
            .field("is_concurrent", is_concurrent)
            .field("lease", lease)
            .field("shards", shards)
            .field("shadow", shadow)
            .field("near_limit", near_limit)
            .finish()
    }
}

/// Whether the name is a Token (RFC 9651, section 3.3.4) of at most 64 characters. A Token is also a String without
/// escapes.
pub(super) fn is_token(name: &str) -> bool {
    let tail = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c);
    name.len() <= 64 && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*') && name.chars().all(tail)
}

/// The default of [`Policy::with_near_limit`](crate::Policy::with_near_limit).
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
