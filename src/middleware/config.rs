//! The settings of a layer.

use std::{fmt, sync::Arc, time::Duration};

use http::{Response, request::Parts};

use super::{
    route::{RouteTable, Settings},
    setup_checks::{KeySetupCheck, StackSetupCheck},
};
use crate::{
    cost::{Cost, NamedCosts},
    error::ConfigError,
    failure::FailurePolicy,
    headers::Writer,
    key::{KeyExtractor, MissingKey},
    limiter::Limiter,
    policy::{Policy, PolicySource},
    rejection::{Denial, ProblemJson, Reason, Rejection},
};

/// The settings that a layer shares with its services and their futures.
pub(crate) struct Config<K, R> {
    pub(super) limiter: Limiter,
    pub(super) first: KeyedPolicies<K>,
    pub(super) others: Vec<KeyedPolicies<dyn KeyExtractor>>,
    pub(super) cost: Cost,
    pub(super) named_costs: NamedCosts,
    pub(super) failure: FailurePolicy,
    pub(super) missing: MissingKey,
    pub(super) routes: RouteTable,
    pub(super) stack: Arc<StackSetupCheck>,
    pub(super) rejection: Arc<R>,
    pub(super) writer: Writer,
    pub(super) outage_retry_after: Duration,
    /// Whether responses to allowed requests get the decision.
    pub(super) decision_in_response: bool,
}

/// A key extractor, and the policies that its keys are charged under.
pub(super) struct KeyedPolicies<K: ?Sized> {
    pub(super) extractor: Arc<K>,
    pub(super) policies: Arc<dyn PolicySource>,
    pub(super) setup_check: Arc<KeySetupCheck>,
}

impl<K> KeyedPolicies<K> {
    pub(super) fn new(key: K, policies: impl PolicySource) -> Self {
        Self { extractor: Arc::new(key), policies: Arc::new(policies), setup_check: Arc::default() }
    }
}

impl KeyedPolicies<dyn KeyExtractor> {
    /// Erases the type of the extractor, so that one `Vec` can hold the further keys of a layer.
    pub(super) fn erased(key: impl KeyExtractor, policies: impl PolicySource) -> Self {
        let KeyedPolicies { extractor, policies, setup_check } = KeyedPolicies::new(key, policies);
        Self { extractor, policies, setup_check }
    }
}

impl<K> Config<K, ProblemJson> {
    pub(super) fn new(limiter: Limiter, policies: impl PolicySource, key: K) -> Self {
        Self {
            limiter,
            first: KeyedPolicies::new(key, policies),
            others: Vec::new(),
            cost: Cost::ONE,
            named_costs: NamedCosts::default(),
            failure: FailurePolicy::default(),
            missing: MissingKey::default(),
            routes: RouteTable::default(),
            stack: Arc::default(),
            rejection: Arc::new(ProblemJson::default()),
            writer: Writer::default(),
            outage_retry_after: Denial::OUTAGE_RETRY_AFTER,
            decision_in_response: false,
        }
    }
}

impl<K, R> Config<K, R> {
    pub(super) fn with_rejection<T>(self, rejection: T) -> Config<K, T> {
        Config {
            limiter: self.limiter,
            first: self.first,
            others: self.others,
            cost: self.cost,
            named_costs: self.named_costs,
            failure: self.failure,
            missing: self.missing,
            routes: self.routes,
            stack: self.stack,
            rejection: Arc::new(rejection),
            writer: self.writer,
            outage_retry_after: self.outage_retry_after,
            decision_in_response: self.decision_in_response,
        }
    }

    /// Checks everything that can be checked without a request.
    ///
    /// # Errors
    ///
    /// A fixed cost that can never pass, two policies that would share a count, a list without policies, or a missing
    /// local fallback.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let layer = Settings::default();
        for settings in std::iter::once(&layer).chain(self.routes.all()) {
            if settings.exempt {
                continue;
            }
            if settings.failure.unwrap_or(self.failure) == FailurePolicy::Local && !self.limiter.has_fallback() {
                return Err(ConfigError::LocalWithoutFallback);
            }
            let fixed = || self.sources(settings).filter_map(PolicySource::fixed);
            if fixed().any(<[Policy]>::is_empty) {
                return Err(ConfigError::NoPolicy);
            }
            let policies: Vec<&Policy> = fixed().flatten().collect();
            for (index, policy) in policies.iter().enumerate() {
                if policies[..index].iter().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
                    return Err(ConfigError::DuplicatePolicy { policy: policy.name().to_owned() });
                }
                let named = settings.named_costs.get(policy).or_else(|| self.named_costs.get(policy));
                if let Some(cost) = named.or(settings.cost.as_ref()).unwrap_or(&self.cost).fixed() {
                    policy.check_cost(cost)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that requests with `settings` are counted under a policy with the name `policy`. Returns `Ok` if a
    /// [`PolicySource`] chooses policies per request, because the names of such policies are not known in advance.
    pub(super) fn require_policy(&self, policy: &str, settings: &Settings) -> Result<(), ConfigError> {
        let Some(known) = self.sources(settings).map(PolicySource::fixed).collect::<Option<Vec<_>>>() else {
            return Ok(());
        };
        let known: Vec<&str> = known.into_iter().flatten().map(Policy::name).collect();
        if known.iter().any(|known| known.eq_ignore_ascii_case(policy)) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(ConfigError::UnknownPolicy { policy: policy.to_owned(), known })
    }

    /// The policy sources of requests with `settings`: the source of the first key, then the sources of the other keys.
    fn sources<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = &'a dyn PolicySource> {
        let first = settings.policies.as_deref().unwrap_or(&*self.first.policies);
        std::iter::once(first).chain(self.others.iter().map(|other| &*other.policies))
    }

    /// Builds the response to a refused request.
    pub(super) fn refuse<B>(&self, parts: &Parts, mut denial: Denial) -> Response<B>
    where
        R: Rejection<B>,
    {
        if let Reason::StoreUnavailable = denial.reason() {
            denial.set_retry_after(self.outage_retry_after);
        }
        denial.respond(&*self.rejection, &self.writer, parts)
    }
}

impl<K, R> Clone for Config<K, R> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            first: self.first.clone(),
            others: self.others.clone(),
            cost: self.cost.clone(),
            named_costs: self.named_costs.clone(),
            failure: self.failure,
            missing: self.missing,
            routes: self.routes.clone(),
            stack: Arc::clone(&self.stack),
            rejection: Arc::clone(&self.rejection),
            writer: self.writer,
            outage_retry_after: self.outage_retry_after,
            decision_in_response: self.decision_in_response,
        }
    }
}

impl<K: ?Sized> Clone for KeyedPolicies<K> {
    fn clone(&self) -> Self {
        let Self { extractor, policies, setup_check } = self;
        Self { extractor: Arc::clone(extractor), policies: Arc::clone(policies), setup_check: Arc::clone(setup_check) }
    }
}

impl<K, R> fmt::Debug for Config<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limiter,
            first,
            others,
            cost,
            named_costs,
            failure,
            missing,
            routes,
            writer,
            outage_retry_after,
            decision_in_response,
            ..
        } = self;
        f.debug_struct("Config")
            .field("limiter", limiter)
            .field("policies", &first.policies.fixed())
            .field("other_keys", &others.len())
            .field("cost", cost)
            .field("named_costs", named_costs)
            .field("failure", failure)
            .field("missing", missing)
            .field("routes", routes)
            .field("writer", writer)
            .field("outage_retry_after", outage_retry_after)
            .field("decision_in_response", decision_in_response)
            .finish_non_exhaustive()
    }
}
