//! The rules as a value, their checks, and the judgement on a layer that its author has not validated.

use std::sync::{Arc, OnceLock};
use std::{any::Any, fmt, iter, time::Duration};

use http::request::Parts;

use crate::error::{ConfigError, FirstMistake};
use crate::headers::{DEFAULT_WRITER, HeaderWriter};
use crate::middleware::route::{Route, RouteTable, Settings};
#[cfg(feature = "plans")]
use crate::observe::Reporter;
use crate::observe::{ObservedRequest, Once};
use crate::policy::{KnownPolicies, Policy, PolicySource, SharedSource, known_policies, validate_beside_alternatives};
use crate::{check::Check, cost::Cost, failure::FailurePolicy, key::matched_path, limiter::Limiter};

/// The rules by which a layer judges a request. A request uses one value from its start to its end.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    /// What applies where a route has no setting of its own.
    pub(in crate::middleware) layer: Settings,
    /// The policies of the further keys.
    pub(in crate::middleware) others: Vec<SharedSource>,
    pub(in crate::middleware) routes: RouteTable,
    /// Whether the layer settles holds.
    pub(in crate::middleware) settles: bool,
    /// For how long a request waits that would be denied; `None` if it is refused at once.
    pub(in crate::middleware) max_wait: Option<Duration>,
    /// Whether the layer refuses nothing.
    pub(in crate::middleware) shadow: Option<bool>,
    pub(in crate::middleware) writer: Option<HeaderWriter>,
    /// Whether the warning that these rules refuse nothing is due. Clones share it.
    pub(in crate::middleware) only_shadow: Arc<Once>,
    /// Whether the warning that nothing is held for the layer to settle is due. Clones share it.
    pub(in crate::middleware) nothing_to_settle: Arc<Once>,
    /// Whether the warning that requests run without a slot is due. Clones share it.
    pub(in crate::middleware) without_slot: Arc<Once>,
    /// The version of live limits that the rules come from, for plans that find their policies there.
    pub(in crate::middleware) origin: Option<Arc<dyn Any + Send + Sync>>,
    /// What is wrong with one setting, whatever the others are.
    pub(in crate::middleware) mistake: FirstMistake,
    /// What the first request has found wrong with the layer that has these rules.
    pub(in crate::middleware) judged: Judged,
}

static ONE: Cost = Cost::ONE;
static NO_POLICIES: [Policy; 0] = [];

impl Rules {
    /// Rules under which each request costs one unit of `policies`.
    pub(in crate::middleware) fn new(policies: impl PolicySource) -> Self {
        let layer = Settings { policies: Some(SharedSource::new(policies)), ..Settings::default() };
        Self { layer, ..Self::default() }
    }

    /// The same rules, which come from this version of live limits.
    #[cfg(all(feature = "plans", feature = "serde"))]
    pub(crate) fn with_origin(self, origin: Arc<dyn Any + Send + Sync>) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// These settings, and those of `base` where there are none.
    #[cfg(feature = "serde")]
    pub(super) fn over(&self, mut base: Self) -> Self {
        base.layer = self.layer.over(base.layer);
        base.others.extend_from_slice(&self.others);
        base.settles |= self.settles;
        base.max_wait = self.max_wait.or(base.max_wait);
        base.shadow = self.shadow.or(base.shadow);
        base.writer = self.writer.clone().or(base.writer);
        base.mistake.keep(self.mistake.found());
        base.mistake.keep(base.routes.extend(&self.routes));
        base
    }

    /// Adds the settings of a route.
    pub(in crate::middleware) fn add_route(&mut self, route: &str, settings: Route) {
        self.mistake.keep(self.routes.insert(route, settings.into_settings()));
    }

    pub(in crate::middleware) fn is_shadow(&self) -> bool {
        self.shadow.unwrap_or_default()
    }

    pub(in crate::middleware) fn writer(&self) -> &HeaderWriter {
        self.writer.as_ref().unwrap_or(&DEFAULT_WRITER)
    }

    /// The failure policy of requests with `settings`.
    pub(in crate::middleware) fn failure(&self, settings: &Settings) -> FailurePolicy {
        settings.failure.or(self.layer.failure).unwrap_or_default()
    }

    /// The cost of requests with `settings` under policies without a cost of their own.
    pub(in crate::middleware) fn plain_cost<'a>(&'a self, settings: &'a Settings) -> &'a Cost {
        settings.cost.as_ref().or(self.layer.cost.as_ref()).unwrap_or(&ONE)
    }

    /// The policies of the first key for requests with `settings`.
    pub(in crate::middleware) fn first_policies<'a>(&'a self, settings: &'a Settings) -> &'a dyn PolicySource {
        settings.policies.as_deref().or(self.layer.policies.as_deref()).unwrap_or(&NO_POLICIES)
    }

    /// Checks everything that can be checked without a request.
    ///
    /// # Errors
    ///
    /// The first mistake in one setting, then that of a policy. Otherwise settings that do not fit together: a fixed
    /// cost that can never pass, the cost of an unknown policy, two policies that would share a count, a list without
    /// policies, a missing local fallback, alternatives that the store or another policy rules out, or holds that the
    /// policies or the store do not have.
    pub(in crate::middleware) fn validate(&self, limiter: &Limiter) -> Result<(), ConfigError> {
        #[cfg(feature = "plans")]
        self.hand_observers_on(limiter);
        limiter.validate()?;
        self.mistake.found()?;
        for source in self.all_sources() {
            source.validate()?;
            known_policies(source).map_or(Ok(()), |known| known.list.iter().try_for_each(Policy::validate))?;
        }
        for settings in iter::once(&self.layer).chain(self.routes.all().filter(|settings| !settings.exempt)) {
            self.validate_entry(settings, limiter)?;
        }
        self.validate_holds(limiter)
    }

    /// Lets plans report to the observers of the limiter.
    #[cfg(feature = "plans")]
    fn hand_observers_on(&self, limiter: &Limiter) {
        let reporters = self.all_sources().filter_map(|source| source.reporter()?.downcast_ref::<Reporter>());
        reporters.for_each(|reporter| reporter.follow(limiter.shared_listener()));
    }

    /// Checks requests with `settings`.
    fn validate_entry(&self, settings: &Settings, limiter: &Limiter) -> Result<(), ConfigError> {
        for policy in settings.named_costs.names() {
            self.require_policy(policy, settings)?;
        }
        if self.failure(settings) == FailurePolicy::Local && !limiter.has_fallback() {
            return Err(ConfigError::local_without_fallback());
        }
        let known: Vec<_> = self.sources(settings).filter_map(known_policies).collect();
        if known.iter().any(|known| known.list.is_empty()) {
            return Err(ConfigError::no_policy());
        }
        let policies: Vec<&Policy> = known.iter().flat_map(|known| known.list).collect();
        if policies.len() > Check::MAX_CHARGES {
            return Err(ConfigError::too_many_charges(Check::MAX_CHARGES));
        }
        for (index, policy) in policies.iter().enumerate() {
            if policies[..index].iter().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
                return Err(ConfigError::duplicate_policy(policy.name()));
            }
        }
        if known.len() == self.sources(settings).count() {
            self.validate_wait(&policies)?;
        }
        if known.iter().any(|known| known.are_alternatives && known.list.len() > 1) {
            if !limiter.has_alternatives() {
                return Err(ConfigError::store_without_alternatives());
            }
            policies.into_iter().try_for_each(validate_beside_alternatives)?;
        }
        known.into_iter().try_for_each(|known| self.validate_costs(known, settings))
    }

    /// Checks that the fixed costs of requests with `settings` can pass these policies. Of alternatives, one is enough.
    fn validate_costs(&self, known: KnownPolicies<'_>, settings: &Settings) -> Result<(), ConfigError> {
        let judged = known.list.iter().map(|policy| {
            let cost = self.cost_under(policy, settings).fixed();
            cost.map_or(Ok(()), |cost| policy.check_cost(cost))
        });
        match known.are_alternatives {
            true => judged.reduce(|one, other| one.or(other)).unwrap_or(Ok(())),
            false => judged.collect(),
        }
    }

    /// Checks that requests with `settings` are counted under a policy with the name `policy`. Returns `Ok` if a
    /// [`PolicySource`] chooses policies per request, because the names of such policies are not known in advance.
    fn require_policy(&self, policy: &str, settings: &Settings) -> Result<(), ConfigError> {
        let Some(known) = self.sources(settings).map(known_policies).collect::<Option<Vec<_>>>() else {
            return Ok(());
        };
        let known: Vec<&str> = known.into_iter().flat_map(|known| known.list).map(Policy::name).collect();
        if known.iter().any(|known| known.eq_ignore_ascii_case(policy)) {
            return Ok(());
        }
        let message =
            format!("no policy is called {policy:?}, so its cost would never be charged; write one of {known:?}");
        Err(ConfigError::new(message).about(policy))
    }

    /// Checks what holds need: a policy that has them if the layer settles, and a store that has them.
    fn validate_holds(&self, limiter: &Limiter) -> Result<(), ConfigError> {
        if self.settles {
            self.require_holds()?;
        }
        let needs_holds = self.settles || self.has_concurrency();
        if needs_holds && !limiter.has_holds() { Err(ConfigError::store_without_holds()) } else { Ok(()) }
    }

    /// Checks that requests can wait for their turn: each for one limit, under which it holds nothing and no denial
    /// counts.
    fn validate_wait(&self, policies: &[&Policy]) -> Result<(), ConfigError> {
        if self.max_wait.is_none() {
            return Ok(());
        }
        if self.settles {
            return Err(ConfigError::new(
                "a request that holds units does not wait for its turn, so `wait_up_to` and a settlement exclude each \
                 other; leave one out",
            ));
        }
        let [policy] = policies else {
            return Err(ConfigError::new(
                "a request waits for one limit; use a layer with one policy and one key for `wait_up_to`, and another \
                 layer for the other limits",
            ));
        };
        let message = match () {
            () if policy.is_concurrent() => {
                "a request does not wait for a slot; leave `wait_up_to` out, or wait for the slot in the handler, with \
                 `Limiter::acquire_hold`"
            }
            () if policy.counts_denials() => {
                "a request that waits is not denied, so bans and counted denials have no meaning beside `wait_up_to`; \
                 leave one out"
            }
            () => return Ok(()),
        };
        Err(ConfigError::of_policy(policy.name(), message))
    }

    /// Checks that a policy has holds. Returns `Ok` if a [`PolicySource`] chooses policies per request.
    fn require_holds(&self) -> Result<(), ConfigError> {
        let has_holds = |known: KnownPolicies<'_>| known.list.iter().any(|policy| policy.holds().is_some());
        if self.all_sources().any(|source| known_policies(source).is_none_or(has_holds)) {
            return Ok(());
        }
        let first = self.all_sources().filter_map(known_policies).flat_map(|known| known.list).next();
        first.map_or(Ok(()), |policy| Err(ConfigError::policy_without_holds(policy.name())))
    }

    /// The request as events name it.
    #[cold]
    pub(in crate::middleware) fn observed<'a>(&'a self, parts: &'a Parts) -> ObservedRequest<'a> {
        let entry = || self.routes.path_of(parts, |one, other| self.is_cheaper(one, other));
        ObservedRequest::new(&parts.method, matched_path(parts).or_else(entry))
    }

    /// Whether a known policy is a concurrency limit.
    fn has_concurrency(&self) -> bool {
        self.all_sources().filter_map(known_policies).flat_map(|known| known.list).any(Policy::is_concurrent)
    }

    /// Whether a request with the settings `one` takes a smaller share of the limits of the first key than a request
    /// with the settings `other` (`None`: those of the layer). `false` if the costs or policies are known only with a
    /// request.
    pub(in crate::middleware) fn is_cheaper(&self, one: &Settings, other: Option<&Settings>) -> bool {
        match (self.largest_share(one), self.largest_share(other.unwrap_or(&self.layer))) {
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
        for policy in known_policies(self.first_policies(settings))?.list {
            let cost = self.cost_under(policy, settings).fixed()?;
            // A unit of a limit of 60 in an hour takes as long to come back as 60 units of a limit of 60 in a minute.
            let part = u128::from(cost.min(Policy::MAX_LIMIT)) * u128::from(policy.window_us());
            let share = Share { part, of: u128::from(policy.limit()) };
            if largest.is_less_than(share) {
                largest = share;
            }
        }
        Some(largest)
    }

    /// The cost of requests with `settings` under a policy.
    fn cost_under<'a>(&'a self, policy: &Policy, settings: &'a Settings) -> &'a Cost {
        let named = settings.named_costs.get(policy).or_else(|| self.layer.named_costs.get(policy));
        named.unwrap_or_else(|| self.plain_cost(settings))
    }

    /// The policy sources of the layer and of all routes.
    fn all_sources(&self) -> impl Iterator<Item = &dyn PolicySource> {
        let of_routes = self.routes.all().filter_map(|settings| settings.policies.as_deref());
        self.sources(&self.layer).chain(of_routes)
    }

    /// The policy sources of requests with `settings`: the source of the first key, then the sources of the other keys.
    fn sources<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = &'a dyn PolicySource> {
        iter::once(self.first_policies(settings)).chain(self.others.iter().map(|other| &**other))
    }
}

/// A share of a limit: the microseconds of its window that a cost takes, times the limit.
#[derive(Clone, Copy)]
struct Share {
    part: u128,
    of: u128,
}

impl Share {
    /// Products stay below 2^126: costs and limits are at most 2^40, and windows below 2^45 microseconds.
    fn is_less_than(self, other: Self) -> bool {
        self.part * other.of < other.part * self.of
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, others, routes, settles, shadow, writer, mistake, .. } = self;
        f.debug_struct("Rules")
            .field("layer", layer)
            .field("others", others)
            .field("routes", routes)
            .field("settles", settles)
            .field("shadow", shadow)
            .field("writer", writer)
            .field("mistake", mistake)
            .finish_non_exhaustive()
    }
}

/// Whether a layer with these rules can limit requests, as the first request finds out: a layer with many routes takes
/// longer to check than a request may.
#[derive(Default)]
pub(in crate::middleware) struct Judged(OnceLock<Result<(), ConfigError>>);

impl Judged {
    /// The answer of `judge`, which is called once.
    #[inline]
    pub(in crate::middleware) fn get(
        &self,
        judge: impl FnOnce() -> Result<(), ConfigError>,
    ) -> Result<(), &ConfigError> {
        self.0.get_or_init(judge).as_ref().map(|&()| ())
    }
}

/// A copy of rules is about to be changed, so it is not judged yet.
impl Clone for Judged {
    fn clone(&self) -> Self {
        Self::default()
    }
}
