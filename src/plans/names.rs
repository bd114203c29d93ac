//! Finds the policies of plans in live limits, by name.

use std::sync::{Arc, Mutex, PoisonError};
use std::{any::Any, collections::HashSet, fmt};

use arc_swap::ArcSwapOption;

use crate::error::ConfigError;
use crate::limits::{LimitsConfig, LiveLimits};
use crate::observe::{Event, Reporter, Warning};
use crate::policy::{IntoPolicies, Policies, Policy};

/// Finds the policies of plans in live limits.
pub(super) struct Names {
    limits: LiveLimits,
    default: Arc<str>,
    /// The default plan as it was at first. Limits without it are refused, so it is only of use in between.
    first: Policy,
    /// The name under which all plans are counted; `None`: each under its own.
    counted_as: Option<Arc<str>>,
    /// The policies under that name.
    renamed: ArcSwapOption<Renamed>,
    /// Unknown names that have been reported.
    reported: Mutex<HashSet<String>>,
}

/// The policies of `limits` under another name.
struct Renamed {
    limits: Arc<LimitsConfig>,
    policies: Vec<Policy>,
}

/// Number of unknown names that are reported. A source that returns more has another fault, and would fill the memory.
const MAX_REPORTED: usize = 1_000;

impl Names {
    pub(super) fn new(limits: LiveLimits, default: &str) -> Result<Self, ConfigError> {
        let default: Arc<str> = default.into();
        let first = limits.require(&default)?;
        let (renamed, reported) = (ArcSwapOption::empty(), Mutex::default());
        Ok(Self { limits, default, first, counted_as: None, renamed, reported })
    }

    pub(super) fn counted_as(&self, name: &str) -> Self {
        Self {
            limits: self.limits.clone(),
            default: Arc::clone(&self.default),
            first: self.first.named(name),
            counted_as: Some(name.into()),
            renamed: ArcSwapOption::empty(),
            reported: Mutex::default(),
        }
    }

    /// The policy of the plan `name`, or the default plan, in the limits that a request uses whose rules are of this
    /// origin. An unknown name is reported.
    pub(super) fn policies(
        &self,
        name: &str,
        origin: Option<&(dyn Any + Send + Sync)>,
        reporter: &Reporter,
    ) -> Policies {
        let limits = self.limits.of_request(origin);
        if limits.has_unlimited(name) {
            return Policies::unlimited();
        }
        let found = self.find(name, &limits).or_else(|| {
            self.report(name, reporter);
            self.find(&self.default, &limits)
        });
        found.unwrap_or_else(|| self.first.clone()).into_policies()
    }

    /// Checks that the limits in force have the plan `name`.
    pub(super) fn require(&self, name: &str) -> Result<(), ConfigError> {
        let limits = self.limits.current();
        if limits.has_unlimited(name) { Ok(()) } else { limits.require(name).map(drop) }
    }

    fn find(&self, name: &str, limits: &Arc<LimitsConfig>) -> Option<Policy> {
        let Some(counted_as) = &self.counted_as else { return limits.policy(name).cloned() };
        let known = self.renamed.load_full().filter(|known| Arc::ptr_eq(&known.limits, limits));
        let known = known.unwrap_or_else(|| {
            let policies = limits.policies().map(|policy| policy.named(counted_as)).collect();
            let renamed = Arc::new(Renamed { policies, limits: Arc::clone(limits) });
            self.renamed.store(Some(Arc::clone(&renamed)));
            renamed
        });
        let is_listed = |policy: &&Policy| policy.listed_as().is_some_and(|known| known.eq_ignore_ascii_case(name));
        known.policies.iter().find(is_listed).cloned()
    }

    #[cold]
    fn report(&self, name: &str, reporter: &Reporter) {
        let Some(listener) = reporter.listener() else { return };
        // The limits may have got the plan after the request has read them.
        let limits = self.limits.current();
        if limits.has_unlimited(name) || limits.policy(name).is_some() {
            return;
        }
        let is_new = {
            // Names are inserted as a whole, so a poisoned lock is usable.
            let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
            reported.len() < MAX_REPORTED && !reported.contains(name) && reported.insert(name.to_owned())
        };
        if is_new {
            listener.on_event(&Event::of_warning(Warning::unknown_plan(name, &self.default)));
        }
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names")
            .field("default", &self.default)
            .field("counted_as", &self.counted_as)
            .finish_non_exhaustive()
    }
}
