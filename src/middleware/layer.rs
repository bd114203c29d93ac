//! What the middleware is told: the layer is its builder.

use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use crate::{
    cost::IntoCost,
    error::ConfigError,
    failure::FailurePolicy,
    headers::{HeaderStyle, Writer, whole_seconds},
    key::{KeyExtractor, MissingKey},
    limiter::Limiter,
    middleware::{
        RateLimit,
        config::{Config, Subject},
        route::{Route, Settings},
    },
    policy::PolicySource,
    rejection::ProblemJson,
};

/// Layer that applies [`RateLimit`]: requests pay before they reach the service.
///
/// Clones and layers derived from one another spend from one budget, whatever their other settings, because they share
/// the [`Limiter`] and count under the same policies and keys. A request that passes two layers pays twice.
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
/// let limit = RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60)?, PeerIp::default());
///
/// let app: Router = Router::new()
///     .route("/watch", get(watch).layer(limit.clone().fail_open()))
///     .route("/search", get(search).layer(limit.clone().with_cost(10)?.fail_closed()))
///     .route("/login", post(login).layer(limit.with_policy(Policy::per_minute("login", 5)?).fail_closed()));
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
///     Ok(RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60)?, PeerIp::default()))
/// }
/// ```
///
/// A closure has no name; box the extractor: `RateLimitLayer<Box<dyn KeyExtractor>>`.
#[must_use]
pub struct RateLimitLayer<K, R = ProblemJson> {
    config: Arc<Config<K, R>>,
}

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Creates a layer that charges each request one unit under `policies`, to the key that `key` finds.
    ///
    /// Fails open, answers with [`ProblemJson`] and the fields of [`HeaderStyle::Draft11`]. An empty list of policies, or two
    /// policies of one name, make it answer every request with 500; [`validated`](Self::validated) finds that before the
    /// first request, and so do all other methods that return a `Result`.
    pub fn new(limiter: Limiter, policies: impl PolicySource, key: K) -> Self {
        Self { config: Arc::new(Config::new(limiter, policies, key)) }
    }
}

impl<K, R> RateLimitLayer<K, R> {
    /// Sets what a request costs: a number, or a closure over the request.
    ///
    /// Set the policies first. A computed cost that is above the limit is refused with 400 when it occurs. Defaults to
    /// 1.
    ///
    /// # Errors
    ///
    /// [`ConfigError::CostAboveLimit`] if a fixed cost could never pass, [`ConfigError::NegativeCost`].
    pub fn with_cost(self, cost: impl IntoCost) -> Result<Self, ConfigError> {
        let cost = cost.into_cost()?;
        self.change(|config| config.cost = cost).validated()
    }

    /// Sets what a request costs under the policy called `policy`, in place of the plain cost of the layer and of its
    /// routes: one unit of the policy that counts requests, say, and many of the one that counts tokens.
    ///
    /// All are paid in one check, together or not at all. A layer's policies have different names, so this also gives
    /// each subject of [`and`](Self::and) a cost of its own. A cost of 0 charges nothing under that policy. A
    /// [route](crate::Route::with_cost_of)'s cost under the same name comes before this one.
    ///
    /// Set the policies first. Where a [`PolicySource`] chooses them for each request, the name cannot be checked here,
    /// and requests under policies of other names pay the plain cost.
    ///
    /// # Errors
    ///
    /// [`ConfigError::UnknownPolicy`] if all policies are fixed and none has the name, [`ConfigError::CostAboveLimit`]
    /// if a fixed cost could never pass that policy, [`ConfigError::NegativeCost`].
    ///
    /// # Examples
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// /// Left by the layer that has read the prompt.
    /// #[derive(Clone)]
    /// struct Tokens(u32);
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let most = 4_096;
    /// let policies = [Policy::per_minute("requests", 60)?, Policy::per_minute("tokens", 100_000)?];
    /// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policies, ApiKey::bearer()).with_cost_of(
    ///     "tokens",
    ///     move |parts: &Parts| parts.extensions.get::<Tokens>().map_or(most, |tokens| tokens.0),
    /// )?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost_of(self, policy: &str, cost: impl IntoCost) -> Result<Self, ConfigError> {
        let cost = cost.into_cost()?;
        self.config.require_policy(policy, &Settings::default())?;
        self.change(|config| config.named_costs.set(policy, cost)).validated()
    }

    /// Replaces the policies of the first key; those of [`and`](Self::and) stay.
    ///
    /// A fixed cost that was set before and is above the new limit is refused with 400 when it occurs; set the cost
    /// last to have it checked.
    pub fn with_policy(self, policies: impl PolicySource) -> Self {
        self.change(|config| config.subject.policies = Arc::new(policies))
    }

    /// Adds a second subject: every request is also charged to the key that `key` finds, under `policies`.
    ///
    /// All subjects are paid together or not at all. A request that is exempt from one of them still pays the others.
    ///
    /// # Examples
    ///
    /// Anonymous requests are limited by address alone:
    ///
    /// ```
    /// use tollgate::{
    ///     ExtensionKey, Key, KeyExtractor, Limiter, MemoryStore, MissingKey, PeerIp, Policy, RateLimitLayer,
    /// };
    /// # #[derive(Clone)]
    /// # struct User(u64);
    /// # impl From<&User> for Key {
    /// #     fn from(user: &User) -> Key { Key::from(user.0) }
    /// # }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let per_address = Policy::per_minute("per-address", 600)?;
    /// let per_user = Policy::per_minute("per-user", 60)?;
    /// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_address, PeerIp::default())
    ///     .and(per_user, ExtensionKey::<User>::new().on_missing_key(MissingKey::Exempt))?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError::DuplicatePolicy`] if the layer has a policy of that name, [`ConfigError::CostAboveLimit`].
    pub fn and(self, policies: impl PolicySource, key: impl KeyExtractor) -> Result<Self, ConfigError> {
        self.change(|config| config.others.push(Subject::any(key, policies))).validated()
    }

    /// Sets what holds for one route, in place of the layer's own settings.
    ///
    /// | entry | covers |
    /// | --- | --- |
    /// | `"/search"` | this path, with all methods |
    /// | `"POST /login"` | this path with POST; settings of a method come before those of all methods |
    /// | `"/users/{id}"` | the template, whatever the parameter is called; one segment of a plain path |
    /// | `"/mcp/{*rest}"` | `/mcp`, `/mcp/` and all that is below, whether templates or plain paths |
    ///
    /// The most specific entry wins, segment by segment as in the router: a text before a parameter, a parameter before
    /// what covers the rest. If it has nothing for the request's method, the next one is asked.
    ///
    /// Settings for `GET` hold for `HEAD` too, and for `CONNECT` with a path, which is how a WebSocket begins over
    /// HTTP/2 (RFC 8441), unless the method has its own.
    ///
    /// # What is compared
    ///
    /// Axum's `MatchedPath`, so the place of the layer does not matter: write the whole template, nesting included
    /// (`/api/users/{id}`). Where no router has matched the request, the path itself is compared: below `nest_service`,
    /// in a fallback, in front of a `Router`, or with plain hyper. A layer *inside* `nest_service` sees the rest of
    /// the path alone.
    ///
    /// Slashes at the end do not count, neither in the entry nor in the request, and repeated slashes in a plain path
    /// are one. All else is compared as it was sent. What cleans paths has to stand outside this layer and outside the
    /// router, or the layer judges another path than the one that is served. `tower_http`'s `NormalizePath` takes
    /// slashes at the end away and leaves one at the beginning, and does nothing else:
    ///
    /// | plain path | the entry `"/a/search"` |
    /// | --- | --- |
    /// | `/a/search/` | covers it, with or without `NormalizePath` |
    /// | `//a/search` | covers it, with or without `NormalizePath`; without it axum answers with 404 |
    /// | `/a//search` | covers it; axum answers with 404, `NormalizePath` or not |
    /// | `/a/./search`, `/a/search/.`, `/x/../a/search` | does not; axum answers with 404, `NormalizePath` or not |
    /// | `/a/search;x` | does not; axum answers with 404, `NormalizePath` or not |
    /// | `/a/%73earch` | does not; axum answers with 404, `NormalizePath` or not |
    ///
    /// Behind `nest_service` or plain hyper a service may read the last three as `/a/search`. Such requests are charged
    /// by the entry that covers the path as it was sent, or else by the layer's own settings. Give the service an entry
    /// that covers all it serves, `"/a/{*rest}"`, or clean the path in a layer outside this one.
    ///
    /// An entry that is [exempt](Route::exempt) does not cover a plain path with `.`, `..` or an empty segment in it,
    /// percent-encoded or not: `/static/../login` is not exempt by `"/static/{*rest}"`, and gets the next entry that
    /// covers it, or the layer's own settings.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidRoute`] if axum 0.8 could not have the route, with what to write instead;
    /// [`ConfigError::DuplicateRoute`] if it is in the table already; and those of [`with_cost`](Self::with_cost) and
    /// [`and`](Self::and).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, Route};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let limit = RateLimitLayer::new(limiter, Policy::per_minute("per-client", 60)?, PeerIp::default())
    ///     .route("/mcp/{*rest}", Route::cost(10))?
    ///     .route("POST /login", Route::policy(Policy::per_minute("login", 5)?).fail_closed())?
    ///     .route("/healthz", Route::exempt())?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn route(self, route: &str, settings: Route) -> Result<Self, ConfigError> {
        let settings = Settings::try_from(settings)?;
        for policy in settings.named_costs.names() {
            self.config.require_policy(policy, &settings)?;
        }
        let mut inserted = Ok(());
        let layer = self.change(|config| inserted = config.routes.insert(route, settings));
        inserted?;
        layer.validated()
    }

    /// Lets requests pass, unlimited, when the store cannot answer: the default, see [`FailurePolicy`].
    pub fn fail_open(self) -> Self {
        self.change(|config| config.failure = FailurePolicy::Open)
    }

    /// Refuses requests with 503 when the store cannot answer, see [`FailurePolicy`].
    pub fn fail_closed(self) -> Self {
        self.change(|config| config.failure = FailurePolicy::Closed)
    }

    /// Judges requests by the instance's share of the limit when the store cannot answer, see [`FailurePolicy::Local`].
    ///
    /// # Errors
    ///
    /// [`ConfigError::LocalWithoutFallback`] unless the limiter has [a local fallback](Limiter::with_local).
    pub fn fail_local(self) -> Result<Self, ConfigError> {
        self.change(|config| config.failure = FailurePolicy::Local).validated()
    }

    /// Sets when a request that is refused with 503, because the store cannot answer, may be repeated.
    ///
    /// Whole seconds, rounded up, at least 1. Defaults to 1 second, because limits hold again within a second of the
    /// store's return.
    pub fn with_outage_retry_after(self, wait: Duration) -> Self {
        self.change(|config| config.outage_retry_after = Duration::from_secs(whole_seconds(wait)))
    }

    /// Sets what a request without a key gets, for all subjects whose extractor does not say it itself
    /// ([`KeyExtractor::on_missing_key`]). Defaults to [`MissingKey::Reject`], because a silent exemption would be a
    /// way around the limit.
    pub fn on_missing_key(self, missing: MissingKey) -> Self {
        self.change(|config| config.missing = missing)
    }

    /// Sets how the limit's state is spelt. Defaults to [`HeaderStyle::Draft11`], the newest revision.
    pub fn with_headers(self, style: HeaderStyle) -> Self {
        self.with_header_writer(Writer::new(style))
    }

    /// Sets how the limit's state is spelt, in detail.
    pub fn with_header_writer(self, writer: Writer) -> Self {
        self.change(|config| config.writer = writer)
    }

    /// Sets how refused requests are answered: [`ProblemJson`], the default, [`PlainText`](crate::rejection::PlainText),
    /// [`EmptyBody`](crate::rejection::EmptyBody) or a closure, see [`Rejection`](crate::rejection::Rejection).
    pub fn with_rejection<T>(self, rejection: T) -> RateLimitLayer<K, T> {
        RateLimitLayer { config: Arc::new(Arc::unwrap_or_clone(self.config).with_rejection(rejection)) }
    }

    fn change(mut self, change: impl FnOnce(&mut Config<K, R>)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self
    }

    /// Finds what could never work, as far as that is possible without a request.
    ///
    /// Methods that return a `Result` do the same, so this is for a layer that is made by [`new`](Self::new) alone.
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
    /// assert!(matches!(twice.validated(), Err(ConfigError::DuplicatePolicy { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn validated(self) -> Result<Self, ConfigError> {
        self.config.validate()?;
        Ok(self)
    }
}

impl<S, K, R> Layer<S> for RateLimitLayer<K, R> {
    type Service = RateLimit<S, K, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.config))
    }
}

impl<K, R> Clone for RateLimitLayer<K, R> {
    fn clone(&self) -> Self {
        Self { config: Arc::clone(&self.config) }
    }
}

impl<K, R> fmt::Debug for RateLimitLayer<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer").field("config", &self.config).finish()
    }
}
