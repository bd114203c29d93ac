//! The plans of all keys. `setters` has their settings.

use std::{any::Any, fmt, sync::Arc};

use http::request::Parts;

use super::core::{Core, Known, Settings};
use super::entry::usable;
use super::source::{Form, Plan, PlanSource};
#[cfg(feature = "serde")]
use super::{entry::without_limits, names::Names};
use crate::error::{ConfigError, FirstMistake};
use crate::policy::{IntoPolicies, Policies, PolicySource};
use crate::{check::Check, key::Key};

/// The plans that a [`PlanSource`] looks up, in a cache. A [`PolicySource`] for a
/// [`RateLimitLayer`](crate::RateLimitLayer) or a [`Route`](crate::Route).
///
/// A request never waits for a look-up. See the [module's page](super) for the rules.
///
/// Clones share the cache. The settings of a clone can differ.
///
/// # Mistakes
///
/// Plans keep the first mistake of their setters. It is a mistake of each [layer](crate::RateLimitLayer#mistakes) and
/// of each [check](Self::check) with these plans.
///
/// # Examples
///
/// See the [module's page](super#examples).
#[derive(Clone)]
#[must_use]
pub struct Plans {
    core: Arc<Core>,
}

impl Plans {
    /// Creates plans that `source` looks up. `default` applies to keys without a plan, until the first answer, and
    /// after a failed look-up.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `default` is unlimited, or has no policy, a policy with a [mistake](crate::Policy#mistakes),
    /// two policies of one name, or more than [`Check::MAX_CHARGES`](crate::Check::MAX_CHARGES) policies.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Key, Policy, plans::Plans};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let (free, paid) =
    ///     (Policy::per_minute("plan", 10)?, Policy::per_minute("plan", 1_000)?);
    /// let plans = Plans::new(
    ///     move |_account: Key| {
    ///         let paid = paid.clone();
    ///         async move { Ok::<_, std::io::Error>(paid) } // in a service: a query
    ///     },
    ///     free,
    /// )?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(source: impl PlanSource, default: impl IntoPolicies) -> Result<Self, ConfigError> {
        let default = default.into_policies();
        if default.is_unlimited {
            return Err(ConfigError::unlimited_default_plan());
        }
        let default = Form::Policies(usable(default)?);
        #[cfg(feature = "serde")]
        return Ok(Self::create(source, default, None));
        #[cfg(not(feature = "serde"))]
        Ok(Self::create(source, default))
    }

    /// Plans with the default settings. `default` is checked.
    pub(super) fn create(
        source: impl PlanSource,
        default: Form,
        #[cfg(feature = "serde")] names: Option<Arc<Names>>,
    ) -> Self {
        Self {
            core: Arc::new(Core {
                source: Arc::new(source),
                default,
                #[cfg(feature = "serde")]
                names,
                settings: Settings::default(),
                mistake: FirstMistake::default(),
                known: Arc::new(Known::with_capacity(Settings::CAPACITY)),
            }),
        }
    }

    /// The policies of a plan, for a request whose rules are of this origin.
    #[cfg_attr(not(feature = "serde"), expect(unused_variables, reason = "no plan is a policy of limits"))]
    #[inline]
    fn policies_of(&self, plan: Form, origin: Option<&(dyn Any + Send + Sync)>) -> Policies {
        match plan {
            Form::Policies(policies) => policies,
            #[cfg(feature = "serde")]
            Form::Named(name) => {
                let names = self.core.names.as_ref().expect("a name is stored only by plans of limits");
                names.policies(&name, origin, &self.core.settings.reporter)
            }
        }
    }

    /// Returns the policies of `key`, without waiting: the current plan, else the last plan while it may be used, else
    /// the default plan. Starts a look-up if one is due.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Key, Policy, plans::Plans};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::ConfigError> {
    /// # let source = |_: Key| async { Ok::<Option<Policy>, &str>(None) };
    /// let plans = Plans::new(source, Policy::per_minute("plan", 10)?)?;
    /// assert_eq!(plans.get("account:17")[0].limit(), 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(&self, key: impl Into<Key>) -> Policies {
        self.policies_of(self.core.get(&key.into()), None)
    }

    /// Creates the check of a cost under the policies of `key`, for jobs that call a [`Limiter`](crate::Limiter). Each
    /// policy is charged `cost` units.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tollgate::{Key, Limiter, MemoryStore, Policy, plans::Plans};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let source = |_: Key| async { Ok::<Option<Policy>, &str>(None) };
    /// # let limiter = Limiter::new(MemoryStore::new());
    /// let plans = Plans::new(source, Policy::per_minute("plan", 10)?)?;
    /// assert!(limiter.check_all(plans.check("account:17", 1)).await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self, key: impl Into<Key>, cost: u64) -> Check {
        let key = key.into();
        Check::of_plan(&key, self.get(key.clone()), cost, &self.core.mistake)
    }

    /// Stores the plan of `key`, as if it had just been looked up. A look-up that is on its way is ignored. `None` is
    /// the default plan.
    ///
    /// For services that hear of an upgrade together with the new plan. Other instances of the service look the plan up
    /// after their TTL.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the plan has no policy, a policy with a [mistake](crate::Policy#mistakes), two policies of
    /// one name, or too many policies, or if it is the name of a policy that the limits do not have.
    pub fn insert(&self, key: impl Into<Key>, plan: impl Into<Plan>) -> Result<(), ConfigError> {
        let Plan(plan) = plan.into();
        let plan = match plan {
            None => self.core.default.clone(),
            Some(Form::Policies(policies)) => Form::Policies(usable(policies)?),
            #[cfg(feature = "serde")]
            Some(Form::Named(name)) => {
                self.core.names.as_ref().ok_or_else(without_limits)?.require(&name)?;
                Form::Named(name)
            }
        };
        self.core.insert(key.into(), plan);
        Ok(())
    }

    /// Forgets the plan of `key`, so that the next request looks it up. A look-up that is on its way is ignored,
    /// because it may have read the old plan.
    ///
    /// Until the answer, the key gets the default plan. [`insert`](Self::insert) avoids that gap. The look-up has the
    /// room of a [known](super#rules) key, so made-up keys do not delay an upgrade. Call it for keys that exist.
    pub fn forget(&self, key: impl Into<Key>) {
        self.core.forget(&key.into());
    }

    pub(super) fn settings(&mut self) -> &mut Settings {
        &mut self.core_mut().settings
    }

    pub(super) fn core_mut(&mut self) -> &mut Core {
        Arc::make_mut(&mut self.core)
    }
}

impl PolicySource for Plans {
    fn policies(&self, _: &Parts, key: &Key) -> Policies {
        self.policies_of(self.core.get(key), None)
    }

    fn policies_in(&self, _: &Parts, key: &Key, origin: Option<&(dyn Any + Send + Sync)>) -> Policies {
        self.policies_of(self.core.get(key), origin)
    }

    fn reporter(&self) -> Option<&(dyn Any + Send + Sync)> {
        Some(&*self.core.settings.reporter)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.core.mistake.found()
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Core { default, settings, known, .. } = &*self.core;
        f.debug_struct("Plans")
            .field("default", default)
            .field("settings", settings)
            .field("known", &known.len())
            .finish_non_exhaustive()
    }
}
