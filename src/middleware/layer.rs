//! The layer: its type, its constructor, the check of its configuration, and the settings of how the holds of a request
//! end.

use std::{fmt, marker::PhantomData, sync::Arc};

use http::response::Parts;
use tower_layer::Layer;

use super::holding::{Settlement, Settling, WrappedBody};
#[cfg(feature = "serde")]
use super::rules::Follower;
use super::rules::{Rules, RulesSource};
use super::{config::Config, service::RateLimit};
use crate::policy::{Policy, PolicySource};
use crate::{error::ConfigError, key::KeyExtractor, limiter::Limiter, rejection::ProblemJson};

/// Layer that applies [`RateLimit`]: requests are charged before they reach the service, and refused above the limit.
///
/// A request above the limit is refused at once, or waits for its turn if the layer has
/// [`wait_up_to`](Self::wait_up_to). Calls of a client to another service wait in a
/// [`ThrottleLayer`](crate::ThrottleLayer).
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
/// let limit = RateLimitLayer::new(
///     limiter,
///     Policy::per_minute("per-client", 60)?,
///     PeerIp::new(),
/// );
///
/// let app: Router = Router::new()
///     .route("/watch", get(watch).layer(limit.clone().fail_open()))
///     .route(
///         "/search",
///         get(search)
///             .layer(limit.clone().with_cost(10).fail_closed().validated()?),
///     )
///     .route(
///         "/login",
///         post(login).layer(
///             limit.with_policies(Policy::per_minute("login", 5)?).fail_closed(),
///         ),
///     );
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
/// fn per_client(
///     limiter: Limiter,
/// ) -> Result<RateLimitLayer<PeerIp>, tollgate::ConfigError> {
///     Ok(RateLimitLayer::new(
///         limiter,
///         Policy::per_minute("per-client", 60)?,
///         PeerIp::new(),
///     ))
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
    /// let policies =
    ///     [Policy::per_second("burst", 10)?, Policy::per_day("daily", 10_000)?];
    /// let limit = RateLimitLayer::new(MemoryStore::new(), policies, ApiKey::bearer())
    ///     .validated()?;
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
    /// use tollgate::{
    ///     ConfigError, GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
    /// };
    ///
    /// # fn main() -> Result<(), ConfigError> {
    /// let policy = Policy::per_minute("all", 60)?;
    /// let twice = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     [policy.clone(), policy],
    ///     GlobalKey,
    /// );
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

impl<K, R, B> RateLimitLayer<K, R, B> {
    /// Holds the cost of a request, and charges it when the response shows what it was.
    ///
    /// The cost of the layer is then an estimate. Under each policy with [holds](crate::Policy::with_holds), it is held
    /// before the service runs, and counts in full meanwhile. `settle` gets the head of the response and decides how
    /// many units are charged: see [`Settlement`]. Policies without holds are charged as ever, in the same check.
    ///
    /// With [`Settlement::AtEnd`], the units are charged when the response body has ended, failed or been dropped:
    /// those that the handler has set in its [`Bill`](super::Bill) by then, or those that were held if it has set none.
    /// Each hold is settled exactly once. The response does not wait for the store: settlements are sent in the
    /// background.
    ///
    /// # Requests that fail
    ///
    /// If the service returns an error or panics, or the request goes away before it has a response, what its bill says
    /// is charged. Without a cost in the bill, the units are charged, unless the policy has
    /// [`HoldSettings::with_unsettled_released`](crate::policy::HoldSettings::with_unsettled_released).
    ///
    /// Work that goes on after its request, in `spawn_blocking` or in a task, keeps the holds with a
    /// [`HoldGuard`](super::HoldGuard).
    ///
    /// # Nothing to settle
    ///
    /// Nothing is held, and nothing is charged later, for an exempt request, for a fixed cost of 0, and for a request
    /// that passes without a verdict of the store. If a closure computes a cost of 0, one unit is held, because clients
    /// choose what the closure reads.
    ///
    /// # Time-to-live
    ///
    /// The layer renews all holds of a request while it lives, so a response may take longer than the
    /// [time-to-live](crate::policy::HoldSettings::with_ttl). The holds of a process that is killed or stands still for
    /// longer end at their time-to-live: what was held is charged, or nothing if the policy releases it. If the
    /// response or its bill says more than that later, the rest is charged too. A [longest
    /// age](crate::policy::HoldSettings::with_longest) bounds how long a hold is renewed.
    ///
    /// # Bodies
    ///
    /// Bodies of axum carry the holds as they are. Around a service with other bodies, such as those of hyper or tonic,
    /// call [`with_held_body`](Self::with_held_body) too; without it, a request that holds units gets 500. The
    /// RateLimit fields are written before the body is sent, so they show the units that are held.
    ///
    /// # What it needs
    ///
    /// A store with holds, and a policy that has holds: without one, the layer would settle nothing, which is a
    /// [mistake](Self#mistakes). If a closure or a plan returns a policy without holds, its requests are charged their
    /// estimates, and the first one is the [warning](crate::observe::Warning) `nothing_to_settle`. The layer does not
    /// add holds by itself, because checks elsewhere would not see them.
    ///
    /// # Examples
    ///
    /// Tokens of a model: an estimate is held, and the handler sets what it was.
    ///
    /// ```
    /// use http::{StatusCode, request, response};
    /// use tollgate::{
    ///     ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer,
    ///     middleware::Settlement, policy::HoldSettings,
    /// };
    ///
    /// fn estimate(request: &request::Parts) -> u64 {
    ///     let length = request
    ///         .headers
    ///         .get("content-length")
    ///         .and_then(|value| value.to_str().ok()?.parse().ok());
    ///     length.map_or(4_000, |bytes: u64| bytes / 4 + 1_000)
    /// }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let tokens =
    ///     Policy::per_minute("tokens", 100_000)?.with_holds(HoldSettings::new());
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     tokens,
    ///     ApiKey::bearer(),
    /// )
    /// .with_cost_fn(estimate)
    /// .with_settlement(|response: &response::Parts| match response.status {
    ///     StatusCode::NOT_MODIFIED => Settlement::Nothing,
    ///     _ => Settlement::AtEnd,
    /// })
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "refund")]
    #[doc(alias = "streaming")]
    pub fn with_settlement(self, settle: impl Fn(&Parts) -> Settlement + Send + Sync + 'static) -> Self {
        self.settled(Settling::All(Arc::new(settle)))
    }

    /// As [`with_settlement`](Self::with_settlement), with an answer for each policy: for a layer whose policies count
    /// different units.
    ///
    /// The closure is called for each policy with holds, except concurrency limits. A handler that knows the costs puts
    /// them on the bill ([`Bill::set_cost_of`](super::Bill::set_cost_of)), with [`Settlement::AtEnd`] here.
    ///
    /// # Examples
    ///
    /// The upstream reports tokens in and out in two fields of its response:
    ///
    /// ```
    /// use http::response::Parts;
    /// use tollgate::{
    ///     ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer,
    ///     middleware::Settlement, policy::HoldSettings,
    /// };
    ///
    /// fn usage(response: &Parts, policy: &Policy) -> Settlement {
    ///     let field = if policy.name() == "input-tokens" {
    ///         "x-tokens-in"
    ///     } else {
    ///         "x-tokens-out"
    ///     };
    ///     let tokens = response
    ///         .headers
    ///         .get(field)
    ///         .and_then(|tokens| tokens.to_str().ok()?.parse().ok());
    ///     tokens.map_or(Settlement::Held, Settlement::Units)
    /// }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = [
    ///     Policy::per_minute("input-tokens", 100_000)?
    ///         .with_holds(HoldSettings::new()),
    ///     Policy::per_minute("output-tokens", 100_000)?
    ///         .with_holds(HoldSettings::new()),
    /// ];
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     policies,
    ///     ApiKey::bearer(),
    /// )
    /// .with_cost_of("input-tokens", 1_000)
    /// .with_cost_of("output-tokens", 4_000)
    /// .with_settlement_by(usage)
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_settlement_by(self, settle: impl Fn(&Parts, &Policy) -> Settlement + Send + Sync + 'static) -> Self {
        self.settled(Settling::Each(Arc::new(settle)))
    }

    fn settled(self, settling: Settling) -> Self {
        self.change(|config| config.settling = Some(settling)).change_rules(|rules| rules.settles = true)
    }

    /// Wraps the body of each response in a [`HeldBody`](super::HeldBody), which carries slots and units that are held:
    /// for services of hyper and tonic. Bodies of axum carry them as they are.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{
    ///     ConfigError, GrpcStatus, Limiter, PeerIp, Policy, RateLimitLayer,
    ///     middleware::WrappedBody,
    /// };
    ///
    /// fn of_streams(
    ///     limiter: Limiter,
    /// ) -> Result<RateLimitLayer<PeerIp, GrpcStatus, WrappedBody>, ConfigError> {
    ///     let streams = Policy::concurrent("streams", 10)?;
    ///     RateLimitLayer::new(limiter, streams, PeerIp::new())
    ///         .with_rejection(GrpcStatus::default())
    ///         .with_held_body()
    ///         .validated()
    /// }
    /// ```
    pub fn with_held_body(self) -> RateLimitLayer<K, R, WrappedBody> {
        RateLimitLayer { config: self.config, body: PhantomData }
    }
}
