//! The layer: its type, its constructor and the check of its configuration.

use std::{fmt, marker::PhantomData, sync::Arc};

use tower_layer::Layer;

use super::{
    config::Config,
    holding::SameBody,
    rules::{OtherPolicies, Rules, RulesSource},
    service::RateLimit,
};
#[cfg(feature = "serde")]
use super::{
    route::{Route, Settings},
    rules::Follower,
};
use crate::{error::ConfigError, key::KeyExtractor, limiter::Limiter, policy::PolicySource, rejection::ProblemJson};

/// Layer that applies [`RateLimit`]: requests are charged before they reach the service, and refused above the limit.
///
/// A request never waits here. For calls that wait for their turn, see [`ThrottleLayer`](crate::ThrottleLayer).
///
/// All clones of a layer, and all layers derived from it, spend from one budget whatever their other settings are,
/// because they share the [`Limiter`] and count under the same policies and keys. A request that passes two such layers
/// is charged twice.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::{get, post}};
/// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// # async fn watch() {}
/// # async fn search() {}
/// # async fn login() {}
/// let limiter = Limiter::new(MemoryStore::new());
/// let limit = RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60)?, PeerIp::new());
///
/// let app: Router = Router::new()
///     .route("/watch", get(watch).layer(limit.clone().fail_open()))
///     .route("/search", get(search).layer(limit.clone().with_cost(10)?.fail_closed()))
///     .route("/login", post(login).layer(limit.with_policies(Policy::per_minute("login", 5)?).fail_closed()));
/// # Ok(())
/// # }
/// ```
///
/// # Naming the type
///
/// ```
/// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
///
/// fn per_client(limiter: Limiter) -> Result<RateLimitLayer<PeerIp>, tollgate::ConfigError> {
///     Ok(RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60)?, PeerIp::new()))
/// }
/// ```
///
/// The type of a closure has no name. Box such an extractor: `RateLimitLayer<Box<dyn KeyExtractor>>`. Another rejection
/// is the second parameter: `RateLimitLayer<PeerIp, PlainText>`. Around a service `S`, the layer makes a
/// `RateLimit<S, PeerIp>`. A layer that [settles](Self::with_settlement) holds has a third parameter:
/// `RateLimitLayer<PeerIp, ProblemJson, WrappedBody>`.
#[must_use]
pub struct RateLimitLayer<K, R = ProblemJson, B = SameBody> {
    pub(super) config: Arc<Config<K, R>>,
    pub(super) body: PhantomData<fn() -> B>,
}

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Creates a layer that charges each request one unit under `policies`, to the key that `key` extracts.
    ///
    /// The failure policy is open. Refused requests get [`ProblemJson`], and responses the fields of
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11). With an empty list of policies, or two policies of one
    /// name, each request gets 500. [`validated`](Self::validated), and every other method that returns a `Result`,
    /// returns this error before the first request.
    ///
    /// # Examples
    ///
    /// Two policies for one key, both charged by each request:
    ///
    /// ```
    /// use tollgate::{ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = [Policy::per_second("burst", 10)?, Policy::per_day("daily", 10_000)?];
    /// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policies, ApiKey::bearer()).validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(limiter: Limiter, policies: impl PolicySource, key: K) -> Self {
        Self {
            config: Arc::new(Config::new(limiter, RulesSource::Fixed(Rules::new(policies)), key)),
            body: PhantomData,
        }
    }
}

#[cfg(feature = "serde")]
impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Creates a layer whose rules are replaced while it serves requests.
    pub(crate) fn following(limiter: Limiter, rules: Arc<Follower>, key: K) -> Self {
        Self { config: Arc::new(Config::new(limiter, RulesSource::Live(rules), key)), body: PhantomData }
    }

    /// Adds the settings of many routes, and checks the configuration once: to check it after each route would take
    /// time that grows with the square of their number.
    pub(crate) fn with_routes<'a>(
        self,
        routes: impl IntoIterator<Item = (&'a str, Route)>,
    ) -> Result<Self, ConfigError> {
        let routes = routes.into_iter().map(|(route, settings)| Ok((route.to_owned(), Settings::try_from(settings)?)));
        let routes = routes.collect::<Result<Vec<_>, ConfigError>>()?;
        self.try_change_rules(move |rules, others| {
            routes.iter().try_for_each(|(route, settings)| rules.add_route(route, settings, others))
        })
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Rules {
        Rules::clone(&self.config.rules.load())
    }
}

impl<K, R, B> RateLimitLayer<K, R, B> {
    /// Checks the configuration and returns the layer.
    ///
    /// All methods of the layer that return a `Result` check the configuration too. Call `validated` on a layer that
    /// uses none of them.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: no policy, two policies of one name, a fixed cost above a limit, or
    /// [`fail_local`](Self::fail_local) without a fallback.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ConfigError, GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), ConfigError> {
    /// let policy = Policy::per_minute("all", 60)?;
    /// let twice = RateLimitLayer::new(Limiter::new(MemoryStore::new()), [policy.clone(), policy], GlobalKey);
    /// assert_eq!(twice.validated().unwrap_err().policy_name(), Some("all"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn validated(self) -> Result<Self, ConfigError> {
        self.config.validate()?;
        Ok(self)
    }

    /// Changes settings that are no rules.
    pub(super) fn change(mut self, change: impl FnOnce(&mut Config<K, R>)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Changes the rules. If the layer follows limits that are replaced, the change stays in force.
    pub(super) fn change_rules(self, change: impl Fn(&mut Rules) + Send + Sync + 'static) -> Self {
        self.change(|config| config.rules.change(change))
    }

    /// As [`change_rules`](Self::change_rules), for a change that may fail. Checks the configuration afterwards.
    pub(super) fn try_change_rules(
        mut self,
        change: impl Fn(&mut Rules, &OtherPolicies) -> Result<(), ConfigError> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        let config = Arc::make_mut(&mut self.config);
        let others = config.other_policies();
        config.rules.try_change(&others, change)?;
        self.validated()
    }
}

impl<S, K, R, B> Layer<S> for RateLimitLayer<K, R, B> {
    type Service = RateLimit<S, K, R, B>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.config))
    }
}

impl<K, R, B> Clone for RateLimitLayer<K, R, B> {
    fn clone(&self) -> Self {
        Self { config: Arc::clone(&self.config), body: PhantomData }
    }
}

impl<K, R, B> fmt::Debug for RateLimitLayer<K, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("config", &self.config).finish()
    }
}
