//! Plans that are policies of live limits, by name.

use std::sync::Arc;

use super::source::{Form, PlanSource};
use super::{handle::Plans, names::Names};
use crate::{error::ConfigError, limits::LiveLimits, policy::Policy};

impl Plans {
    /// Creates plans that are policies of live limits: `source` returns the name of a policy, and `default` is the name
    /// of the default plan.
    ///
    /// A name is looked up each time it is used, so a changed limit applies to the next request of every key, although
    /// the name of its plan stays in the cache. In a layer of the same limits, it is looked up in the version that the
    /// request uses, elsewhere in the limits in force. A name that the limits do not have gets the default plan and is
    /// reported, once for each name. The limits always have the default plan: new limits without it are refused while
    /// the plans exist.
    ///
    /// Each plan is counted under the name of its policy, so that headers, metrics and tools show the plan. An account
    /// that changes its plan starts a new count, and so does an account that gets the default plan until its first
    /// look-up has ended. [`with_one_count`](Self::with_one_count) gives all plans one count.
    ///
    /// A policy that only plans charge has `in-code = true` in the file; otherwise it is reported as unused.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the limits have no policy with the name of the default plan.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{
    ///     ExtensionKey, Key, Limiter, LiveLimits, MemoryStore, limits::LimitsConfig,
    ///     plans::Plans,
    /// };
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
    ///     // A query.
    ///     |_account: Key| async {
    ///         Ok::<_, std::io::Error>(Some("paid".to_owned()))
    ///     },
    ///     "free",
    /// )?;
    /// // Costs and routes are those of the file, and the policy is that of the
    /// // account's plan.
    /// let layer = live
    ///     .layer(Limiter::new(MemoryStore::new()), ExtensionKey::<u64>::new())?
    ///     .with_policies(plans);
    /// # let _ = layer;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_limits(limits: &LiveLimits, source: impl PlanSource, default: &str) -> Result<Self, ConfigError> {
        let names = Names::new(limits.clone(), default)?;
        Ok(Self::create(source, Form::Named(default.into()), Some(Arc::new(names))))
    }

    /// Counts all plans under one name, in place of the names of their policies. Units that an account has spent under
    /// one plan then count under the next one, as far as the policies have one window and algorithm.
    ///
    /// Headers and metrics show `name` for every plan. The [cost of a single
    /// policy](crate::RateLimitLayer::with_cost_of), in the limits or in code, has the name of the policy in the
    /// limits. A cost under `name` applies to the plans without such a cost. No effect on policies that the source
    /// returns itself.
    ///
    /// A name that no policy can have is a [mistake](Self#mistakes).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{ConfigError, Key, LiveLimits, plans::Plans};
    /// # fn plans(live: LiveLimits, source: impl tollgate::plans::PlanSource) -> Result<Plans, ConfigError> {
    /// Ok(Plans::of_limits(&live, source, "free")?.with_one_count("plan"))
    /// # }
    /// ```
    pub fn with_one_count(mut self, name: &str) -> Self {
        let core = self.core_mut();
        if core.mistake.keep(Policy::per_second(name, 1)).is_some() {
            core.names = core.names.as_ref().map(|names| Arc::new(names.counted_as(name)));
        }
        self
    }
}
