//! The layer: its type, its constructor and the check of its configuration.

use std::{fmt, marker::PhantomData, sync::Arc};

use tower_layer::Layer;

#[cfg(feature = "serde")]
use super::rules::Follower;
use super::{
    config::Config,
    rules::{Rules, RulesSource},
    service::RateLimit,
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
///     .route("/search", get(search).layer(limit.clone().with_cost(10).fail_closed().validated()?))
///     .route("/login", post(login).layer(limit.with_policies(Policy::per_minute("login", 5)?).fail_closed()));
/// # Ok(())
/// # }
/// ```
///
/// # Mistakes
///
/// No setter returns a `Result`. A layer keeps the first mistake in its settings, and [`validated`](Self::validated)
/// returns it, or that of its policies, so let `.validated()?` be the last line of each layer. Settings that have to
/// fit together, such as a cost and a limit, may be set in any order.
///
/// A layer with a mistake that is not validated never lets a request pass: each request gets 500, whatever the failure
/// policy is, and the limiter reports the mistake ([by itself](crate::observe#what-a-limiter-reports-by-itself) too). A
/// request for which a closure chooses a policy with a mistake gets 500 in the same way. Only a layer in [shadow
/// mode](Self::with_shadow), which refuses nothing, lets requests pass; with a mistake in a
/// [`ClientIp`](crate::ClientIp), whose [denied addresses](crate::ClientIp::deny) are refused in that mode too, each
/// request gets 500.
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
/// `RateLimit<S, PeerIp>`.
///
/// The third parameter is about the bodies of responses. By default they are those of the service. Bodies of axum carry
/// what a request holds, units and the slots of [concurrency limits](crate::Policy::concurrent), as they are. Around a
/// service with other bodies, [`with_held_body`](Self::with_held_body) wraps each of them:
/// `RateLimitLayer<PeerIp, ProblemJson, WrappedBody>`.
#[must_use]
pub struct RateLimitLayer<K, R = ProblemJson, B = ()> {
    pub(super) config: Arc<Config<K, R>>,
    pub(super) body: PhantomData<fn() -> B>,
}

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Creates a layer that charges each request one unit under `policies`, to the key that `key` extracts.
    ///
    /// `limiter` is a [`Limiter`], or a store, of which a limiter with the default settings is made.
    ///
    /// The failure policy is open. Refused requests get [`ProblemJson`], and responses the fields of
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11). An empty list of policies, or two policies of one name,
    /// are [mistakes](RateLimitLayer#mistakes).
    ///
    /// # Examples
    ///
    /// Two policies for one key, both charged by each request:
    ///
    /// ```
    /// use tollgate::{ApiKey, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = [Policy::per_second("burst", 10)?, Policy::per_day("daily", 10_000)?];
    /// let limit = RateLimitLayer::new(MemoryStore::new(), policies, ApiKey::bearer()).validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(limiter: impl Into<Limiter>, policies: impl PolicySource, key: K) -> Self {
        Self {
            config: Arc::new(Config::new(limiter.into(), RulesSource::Fixed(Rules::new(policies)), key)),
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

    /// The rules in force.
    pub(crate) fn rules(&self) -> Rules {
        Rules::clone(&self.config.rules.load())
    }
}

impl<K: KeyExtractor, R, B> RateLimitLayer<K, R, B> {
    /// Returns the layer, or the first mistake in its settings. The last line of each layer.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: a mistake of its keys, or the first setting that is wrong by itself, then a mistake of a
    /// policy. Otherwise settings that do not fit together: no policy, two policies of one name, a fixed cost above a
    /// limit, the cost of a policy that the layer does not have, [`fail_local`](Self::fail_local) without a fallback,
    /// or holds that the policies or the store do not have.
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
        self.config.validate(&self.config.rules.load()).map_err(ConfigError::clone)?;
        Ok(self)
    }
}

impl<K, R, B> RateLimitLayer<K, R, B> {
    /// Changes settings that are no rules.
    pub(super) fn change(mut self, change: impl FnOnce(&mut Config<K, R>)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Changes the rules. If the layer follows limits that are replaced, the change stays in force.
    pub(super) fn change_rules(self, change: impl Fn(&mut Rules)) -> Self {
        self.change(|config| config.rules.change(change))
    }
}

impl<S: Clone, K, R, B> Layer<S> for RateLimitLayer<K, R, B> {
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
