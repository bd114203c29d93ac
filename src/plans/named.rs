//! Plans that are policies of live limits, by name.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwapOption;

use super::{handle::Plans, plan::Plan, source::PlanSource};
use crate::{
    config::LimitsConfig,
    error::ConfigError,
    live::LiveLimits,
    observe::{Reporter, Warning},
    policy::{IntoPolicies, Policies, Policy},
};

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

/// The policies of `limits` under another name, each with its own name in front.
struct Renamed {
    limits: Arc<LimitsConfig>,
    policies: Vec<(String, Policy)>,
}

/// Number of unknown names that are reported. A source that returns more has another fault, and would fill the memory.
const MAX_REPORTED: usize = 1_000;

impl Names {
    fn new(limits: LiveLimits, default: &str) -> Result<Self, ConfigError> {
        let default: Arc<str> = default.into();
        let first = limits.require(&default)?;
        let (renamed, reported) = (ArcSwapOption::empty(), Mutex::default());
        Ok(Self { limits, default, first, counted_as: None, renamed, reported })
    }

    fn counted_as(&self, name: &str) -> Self {
        Self {
            limits: self.limits.clone(),
            default: Arc::clone(&self.default),
            first: self.first.named(name),
            counted_as: Some(name.into()),
            renamed: ArcSwapOption::empty(),
            reported: Mutex::default(),
        }
    }

    /// The policy of the plan `name` in the limits in force, or the default plan. An unknown name is reported.
    pub(super) fn policies(&self, name: &str, reporter: &Reporter) -> Policies {
        let found = self.find(name).or_else(|| {
            self.report(name, reporter);
            self.find(&self.default)
        });
        found.unwrap_or_else(|| self.first.clone()).into_policies()
    }

    /// Checks that the limits in force have the plan `name`.
    pub(super) fn require(&self, name: &str) -> Result<(), ConfigError> {
        self.limits.current().require(name).map(drop)
    }

    fn find(&self, name: &str) -> Option<Policy> {
        let Some(counted_as) = &self.counted_as else { return self.limits.policy(name) };
        let limits = self.limits.current();
        let known = self.renamed.load_full().filter(|known| Arc::ptr_eq(&known.limits, &limits));
        let known = known.unwrap_or_else(|| {
            let policies = limits.policies().map(|policy| (policy.name().to_owned(), policy.named(counted_as)));
            let renamed = Arc::new(Renamed { policies: policies.collect(), limits });
            self.renamed.store(Some(Arc::clone(&renamed)));
            renamed
        });
        let found = known.policies.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, policy)| policy.clone())
    }

    #[cold]
    fn report(&self, name: &str, reporter: &Reporter) {
        let Some(listener) = reporter.listener() else { return };
        let is_new = {
            // Names are inserted as a whole, so a poisoned lock is usable.
            let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
            reported.len() < MAX_REPORTED && !reported.contains(name) && reported.insert(name.to_owned())
        };
        if is_new {
            listener.on_warning(&Warning::UnknownPlan { plan: name.to_owned(), default: self.default.to_string() });
        }
    }
}

impl Plans {
    /// Creates plans that are policies of live limits: `source` returns the name of a policy, and `default` is the name
    /// of the default plan.
    ///
    /// A name is looked up in the limits in force each time it is used, so a changed limit applies to the next request
    /// of every key, although the name of its plan stays in the cache. A name that the limits do not have gets the
    /// default plan and is reported, once for each name. The limits always have the default plan: new limits without it
    /// are refused while the plans exist.
    ///
    /// Each plan is counted under the name of its policy, so that headers, metrics and tools show the plan. An account
    /// that changes its plan starts a new count, and so does an account that gets the default plan until its first
    /// look-up has ended. [`with_one_count`](Self::with_one_count) gives all plans one count.
    ///
    /// A policy that only plans charge has `in-code = true` in the file; otherwise it is reported as unused.
    ///
    /// # Errors
    ///
    /// [`ConfigError::UnknownPlan`] if the limits have no policy with the name of the default plan.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ExtensionKey, Key, Limiter, LiveLimits, MemoryStore, config::LimitsConfig, plans::Plans};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limits: LimitsConfig = toml::from_str(
    ///     r#"
    ///         policies.free.rate = "60/min"
    ///         policies.paid = { rate = "6000/min", in-code = true }
    ///         default.policies = ["free"]
    ///         routes."/search".cost = 10
    ///     "#,
    /// )?;
    /// let live = LiveLimits::new(limits); // in a service: `LiveLimits::watch`
    /// let plans = Plans::of_limits(
    ///     &live,
    ///     |_account: Key| async { Ok::<_, std::io::Error>(Some("paid".to_owned())) }, // a query
    ///     "free",
    /// )?;
    /// // Costs and routes are those of the file, and the policy is that of the account's plan.
    /// let layer = live.layer(Limiter::new(MemoryStore::new()), ExtensionKey::<u64>::new())?.with_policy(plans);
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_limits(limits: &LiveLimits, source: impl PlanSource, default: &str) -> Result<Self, ConfigError> {
        let names = Names::new(limits.clone(), default)?;
        Ok(Self::create(source, Plan::named(default), Some(Arc::new(names))))
    }

    /// Counts all plans under one name, in place of the names of their policies. Units that an account has spent under
    /// one plan then count under the next one, as far as the policies have one window and algorithm.
    ///
    /// Headers and metrics show `name` for every plan. No effect on policies that the source returns itself.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidPolicyName`] as for a policy.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{ConfigError, Key, LiveLimits, plans::Plans};
    /// # fn plans(live: LiveLimits, source: impl tollgate::plans::PlanSource) -> Result<Plans, ConfigError> {
    /// Plans::of_limits(&live, source, "free")?.with_one_count("plan")
    /// # }
    /// ```
    pub fn with_one_count(mut self, name: &str) -> Result<Self, ConfigError> {
        Policy::per_second(name, 1)?;
        let core = self.core_mut();
        core.names = core.names.as_ref().map(|names| Arc::new(names.counted_as(name)));
        Ok(self)
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
