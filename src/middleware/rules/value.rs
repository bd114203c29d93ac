//! The rules as a value, and their checks.

use std::{fmt, sync::Arc};

use http::request::Parts;

use super::judged::Judged;
use crate::{
    cost::{Cost, NamedCosts},
    error::{ConfigError, FirstMistake},
    failure::FailurePolicy,
    headers::Writer,
    key::path::matched_path,
    limiter::Limiter,
    middleware::route::{Route, RouteTable, Settings},
    observe::{ObservedRequest, Once},
    policy::{Policy, PolicySource},
};

/// The policies of the further keys of a layer.
pub(crate) type OtherPolicies = Vec<Arc<dyn PolicySource>>;

/// The rules by which a layer judges a request. A request uses one value from its start to its end.
#[derive(Clone)]
pub(crate) struct Rules {
    /// The policies of the first key.
    pub(in crate::middleware) policies: Arc<dyn PolicySource>,
    pub(in crate::middleware) cost: Cost,
    pub(in crate::middleware) named_costs: NamedCosts,
    pub(in crate::middleware) failure: FailurePolicy,
    pub(in crate::middleware) routes: RouteTable,
    pub(in crate::middleware) writer: Writer,
    /// Whether the layer refuses nothing.
    pub(in crate::middleware) shadow: bool,
    /// Whether the warning that these rules refuse nothing is due. Clones share it.
    pub(in crate::middleware) only_shadow: Arc<Once>,
    /// Whether the warning that requests run without a slot is due. Clones share it.
    pub(in crate::middleware) without_slot: Arc<Once>,
    /// What is wrong with one setting, whatever the others are.
    pub(in crate::middleware) mistake: FirstMistake,
    /// What the first request has found wrong with the layer that has these rules.
    pub(in crate::middleware) judged: Judged,
}

impl Rules {
    pub(in crate::middleware) fn new(policies: impl PolicySource) -> Self {
        Self {
            policies: Arc::new(policies),
            cost: Cost::ONE,
            named_costs: NamedCosts::default(),
            failure: FailurePolicy::default(),
            routes: RouteTable::default(),
            writer: Writer::default(),
            shadow: false,
            only_shadow: Arc::default(),
            without_slot: Arc::default(),
            mistake: FirstMistake::default(),
            judged: Judged::default(),
        }
    }

    /// Checks everything that can be checked without a request. `others` are the policies of the further keys.
    /// `settles` says whether the layer settles holds.
    ///
    /// # Errors
    ///
    /// The first mistake in one setting. Otherwise settings that do not fit together: a fixed cost that can never pass,
    /// the cost of an unknown policy, two policies that would share a count, a list without policies, a missing local
    /// fallback, or holds that the policies or the store do not have.
    pub(in crate::middleware) fn validate(
        &self,
        others: &OtherPolicies,
        settles: bool,
        limiter: &Limiter,
    ) -> Result<(), ConfigError> {
        limiter.validate()?;
        self.mistake.found()?;
        for source in self.all_sources(others) {
            source.validate()?;
        }
        let layer = Settings::default();
        for policy in self.named_costs.names() {
            self.require_policy(policy, &layer, others)?;
        }
        for settings in std::iter::once(&layer).chain(self.routes.all().filter(|settings| !settings.exempt)) {
            self.validate_entry(settings, others, limiter)?;
        }
        self.validate_holds(others, settles, limiter)
    }

    /// Checks requests with `settings`.
    fn validate_entry(
        &self,
        settings: &Settings,
        others: &OtherPolicies,
        limiter: &Limiter,
    ) -> Result<(), ConfigError> {
        if settings.failure.unwrap_or(self.failure) == FailurePolicy::Local && !limiter.has_fallback() {
            return Err(ConfigError::local_without_fallback());
        }
        for policy in settings.named_costs.names() {
            self.require_policy(policy, settings, others)?;
        }
        let fixed = || self.sources(settings, others).filter_map(PolicySource::fixed);
        if fixed().any(<[Policy]>::is_empty) {
            return Err(ConfigError::no_policy());
        }
        let policies: Vec<&Policy> = fixed().flatten().collect();
        for (index, policy) in policies.iter().enumerate() {
            if policies[..index].iter().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
                return Err(ConfigError::duplicate_policy(policy.name()));
            }
            if let Some(cost) = self.cost_under(policy, settings).fixed() {
                policy.check_cost(cost)?;
            }
        }
        Ok(())
    }

    /// Adds the settings of a route.
    pub(in crate::middleware) fn add_route(&mut self, route: &str, settings: Route) {
        let settings = settings.into_settings(&mut self.mistake);
        self.mistake.keep(self.routes.insert(route, settings));
    }

    /// Checks that requests with `settings` are counted under a policy with the name `policy`. Returns `Ok` if a
    /// [`PolicySource`] chooses policies per request, because the names of such policies are not known in advance.
    fn require_policy(&self, policy: &str, settings: &Settings, others: &OtherPolicies) -> Result<(), ConfigError> {
        let Some(known) = self.sources(settings, others).map(PolicySource::fixed).collect::<Option<Vec<_>>>() else {
            return Ok(());
        };
        let known: Vec<&str> = known.into_iter().flatten().map(Policy::name).collect();
        if known.iter().any(|known| known.eq_ignore_ascii_case(policy)) {
            return Ok(());
        }
        let message =
            format!("no policy is called {policy:?}, so its cost would never be charged; write one of {known:?}");
        Err(ConfigError::new(message).about(policy))
    }

    /// Checks what holds need: a policy that has them if the layer settles, and a store that has them.
    fn validate_holds(&self, others: &OtherPolicies, settles: bool, limiter: &Limiter) -> Result<(), ConfigError> {
        if settles {
            self.require_holds(others)?;
        }
        let needs_holds = settles || self.has_concurrency(others);
        if needs_holds && !limiter.has_holds() { Err(ConfigError::store_without_holds()) } else { Ok(()) }
    }

    /// Checks that a policy has holds. Returns `Ok` if a [`PolicySource`] chooses policies per request.
    fn require_holds(&self, others: &OtherPolicies) -> Result<(), ConfigError> {
        let mut sources = self.all_sources(others);
        if sources.any(|source| source.fixed().is_none_or(|fixed| fixed.iter().any(|policy| policy.holds().is_some())))
        {
            return Ok(());
        }
        let first = self.all_sources(others).filter_map(PolicySource::fixed).flatten().next();
        first.map_or(Ok(()), |policy| Err(ConfigError::policy_without_holds(policy.name())))
    }

    /// The request as events name it.
    #[cold]
    pub(in crate::middleware) fn observed<'a>(&'a self, parts: &'a Parts) -> ObservedRequest<'a> {
        let entry = || self.routes.path_of(parts, |one, other| self.is_cheaper(one, other));
        ObservedRequest::new(&parts.method, matched_path(parts).or_else(entry))
    }

    /// Whether a fixed policy is a concurrency limit.
    fn has_concurrency(&self, others: &OtherPolicies) -> bool {
        self.all_sources(others).filter_map(PolicySource::fixed).flatten().any(Policy::is_concurrent)
    }

    /// Whether a request with the settings `one` takes a smaller share of the limits of the first key than a request
    /// with the settings `other` (`None`: those of the layer). `false` if the costs or policies are known only with a
    /// request.
    pub(in crate::middleware) fn is_cheaper(&self, one: &Settings, other: Option<&Settings>) -> bool {
        let layer = Settings::default();
        match (self.largest_share(one), self.largest_share(other.unwrap_or(&layer))) {
            (Some(one), Some(other)) => one.is_less_than(other),
            _ => false,
        }
    }

    /// The largest share of a limit that a request with `settings` takes.
    fn largest_share(&self, settings: &Settings) -> Option<Share> {
        let mut largest = Share { part: 0, of: 1 };
        if settings.exempt {
            return Some(largest);
        }
        for policy in settings.policies.as_deref().unwrap_or(&*self.policies).fixed()? {
            let cost = self.cost_under(policy, settings).fixed()?;
            // A unit of a limit of 60 in an hour takes as long to come back as 60 units of a limit of 60 in a minute.
            let part = u128::from(cost) * u128::from(policy.window_us());
            let share = Share { part, of: u128::from(policy.limit()) };
            if largest.is_less_than(share) {
                largest = share;
            }
        }
        Some(largest)
    }

    /// The cost of requests with `settings` under a policy.
    fn cost_under<'a>(&'a self, policy: &Policy, settings: &'a Settings) -> &'a Cost {
        let named = settings.named_costs.get(policy).or_else(|| self.named_costs.get(policy));
        named.or(settings.cost.as_ref()).unwrap_or(&self.cost)
    }

    /// The policy sources of the layer and of all routes.
    fn all_sources<'a>(&'a self, others: &'a OtherPolicies) -> impl Iterator<Item = &'a dyn PolicySource> {
        let of_routes = self.routes.all().filter_map(|settings| settings.policies.as_deref());
        let layer = std::iter::once(&*self.policies).chain(others.iter().map(|other| &**other));
        layer.chain(of_routes)
    }

    /// The policy sources of requests with `settings`: the source of the first key, then the sources of the other keys.
    fn sources<'a>(
        &'a self,
        settings: &'a Settings,
        others: &'a OtherPolicies,
    ) -> impl Iterator<Item = &'a dyn PolicySource> {
        let first = settings.policies.as_deref().unwrap_or(&*self.policies);
        std::iter::once(first).chain(others.iter().map(|other| &**other))
    }
}

/// A share of a limit: the microseconds of its window that a cost takes, times the limit.
#[derive(Clone, Copy)]
struct Share {
    part: u128,
    of: u128,
}

impl Share {
    /// Products stay below 2^110: costs and limits are below 2^32, and windows below 2^45 microseconds.
    fn is_less_than(self, other: Self) -> bool {
        self.part * other.of < other.part * self.of
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policies, cost, named_costs, failure, routes, writer, shadow, mistake, .. } = self;
        f.debug_struct("Rules")
            .field("policies", &policies.fixed())
            .field("cost", cost)
            .field("named_costs", named_costs)
            .field("failure", failure)
            .field("routes", routes)
            .field("writer", writer)
            .field("shadow", shadow)
            .field("mistake", mistake)
            .finish_non_exhaustive()
    }
}
