//! Rules: what a descriptor that matches is limited to.

use std::{sync::Arc, time::Duration};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{RateLimit, rate_limit::Unit};
use envoy_types::pb::google::protobuf::Struct;
use tollgate::{Algorithm, ConfigError, FailurePolicy, Policy, policy::HoldSettings};

use crate::meters::RuleMeters;

/// The limit of a descriptor of the configuration, and all that belongs to it.
#[derive(Debug)]
pub(crate) struct Rule {
    /// `None`: unlimited.
    pub(crate) limit: Option<Limit>,
    /// `rate_limit.name`, which other rules replace.
    pub(crate) name: Option<String>,
    /// The names of the rules that are not applied beside this one.
    pub(crate) replaces: Vec<String>,
    pub(crate) shadow_mode: bool,
    pub(crate) quota_mode: bool,
    /// Whether metrics have the values that the configuration leaves open.
    pub(crate) detailed_metric: bool,
    pub(crate) metadata: Option<Struct>,
    pub(crate) meters: Arc<RuleMeters>,
}

/// Units per window, and how they are counted.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) policy: Policy,
    /// What `current_limit` of a status says.
    pub(crate) shown: RateLimit,
    pub(crate) settings: Arc<Settings>,
}

/// What an override of the limit leaves as it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// The name of the policy, in the fields of responses.
    pub(crate) policy_name: String,
    /// `rate_limit.name`, or nothing.
    pub(crate) shown_name: String,
    pub(crate) algorithm: Algorithm,
    pub(crate) burst: Option<u64>,
    pub(crate) resolution: Option<Duration>,
    pub(crate) lease: Option<u64>,
    /// How long a hold may stay open; `None` without holds.
    pub(crate) hold_ttl: Option<Duration>,
    pub(crate) is_concurrent: bool,
    /// Whether hits are charged although they do not fit, because they were spent already.
    pub(crate) record: bool,
    pub(crate) on_store_failure: FailurePolicy,
}

impl Limit {
    pub(crate) fn new(units: u64, window: Duration, settings: &Arc<Settings>) -> Result<Self, ConfigError> {
        let policy = settings.policy(units, window)?;
        let name = settings.shown_name.clone();
        let requests_per_unit = u32::try_from(units).unwrap_or(u32::MAX);
        let unit = if settings.is_concurrent { Unit::Unknown } else { unit_of(window) };
        let shown = RateLimit { name, requests_per_unit, unit: unit.into() };
        Ok(Self { policy, shown, settings: Arc::clone(settings) })
    }

    /// This limit with other units and another window. A burst, a lease and a resolution belong to the old ones.
    pub(crate) fn with_units(&self, units: u32, window: Duration) -> Result<Self, ConfigError> {
        let old = self.settings.as_ref().clone();
        let settings = Settings { burst: None, resolution: None, lease: None, is_concurrent: false, ..old };
        Self::new(units.into(), window, &Arc::new(settings))
    }
}

impl Settings {
    fn policy(&self, units: u64, window: Duration) -> Result<Policy, ConfigError> {
        if units == 0 {
            return Policy::blocked(&self.policy_name);
        }
        // Units of a stream that died may have been spent; its slot is free.
        let holds = |ttl| HoldSettings::new().with_ttl(ttl).with_unsettled_released(self.is_concurrent);
        if self.is_concurrent {
            let policy = Policy::concurrent(&self.policy_name, units)?;
            return policy.with_holds(holds(self.hold_ttl.unwrap_or(DEFAULT_TTL))).validated();
        }
        let mut policy = Policy::new(&self.policy_name, units, window)?.with_algorithm(self.algorithm);
        if let Some(burst) = self.burst {
            policy = policy.with_burst(burst);
        }
        if let Some(resolution) = self.resolution {
            policy = policy.with_resolution(resolution);
        }
        if let Some(ttl) = self.hold_ttl {
            policy = policy.with_holds(holds(ttl));
        }
        if let Some(units) = self.lease {
            policy = policy.with_lease(units);
        }
        policy.validated()
    }
}

/// The time-to-live of a slot without `hold_ttl`.
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(60);

const DAY: u64 = 86_400;

/// The units of a window, with their lengths in seconds. A month has 30 days and a year 365, as in the reference.
pub(crate) const UNITS: [(&str, Unit, u64); 7] = [
    ("second", Unit::Second, 1),
    ("minute", Unit::Minute, 60),
    ("hour", Unit::Hour, 3_600),
    ("day", Unit::Day, DAY),
    ("week", Unit::Week, 7 * DAY),
    ("month", Unit::Month, 30 * DAY),
    ("year", Unit::Year, 365 * DAY),
];

/// The unit of this length, or none.
fn unit_of(window: Duration) -> Unit {
    let same = |&&(_, _, seconds): &&(&str, Unit, u64)| window == Duration::from_secs(seconds);
    UNITS.iter().find(same).map_or(Unit::Unknown, |(_, unit, _)| *unit)
}
