//! Limits as data: policies, routes, costs, failure policies and header style from a file, in any format of serde
//! (feature `serde`).
//!
//! The words of a file are the setters of [`Policy`], [`RateLimitLayer`] and
//! [`Route`] in kebab case, and mean the same. [Limits in a file](crate::guide::config_file) lists
//! all of them.
//!
//! # Rules
//!
//! 1. Deserialize a [`LimitsConfig`]. The text of the error has all mistakes at once, in a line each, with its place:
//!    `routes."/search".cost`. Of more than 32, the last line counts the others.
//! 2. A field that a route leaves out is that of `default`. A field that `default` leaves out has the default of the
//!    layer.
//! 3. Names of policies are compared without case.
//! 4. A file that limits nothing is refused, unless it says `shadow`.
//! 5. A [`LimitsConfig`] is a plain value. [`LimitsConfig::layer`] calls the setters of the layer with it.
//!
//! # Examples
//!
//! A whole file:
//!
//! ```
//! use axum::{Router, body::Body, routing::get};
//! use http::{Request, StatusCode};
//! use tollgate::{GlobalKey, Limiter, MemoryStore, limits::LimitsConfig};
//! use tower::ServiceExt;
//!
//! const FILE: &str = r#"
//!     headers = "x-ratelimit"
//!
//!     [policies.per-client]
//!     rate = "60/min"
//!     ban-after = { denials = 100, for = "10m" }
//!
//!     [policies.tokens]
//!     limit = 100_000
//!     window = "1d"
//!     algorithm = "token-bucket"
//!     burst = 5_000
//!     unit = "tokens"
//!     near-limit = 0.9
//!
//!     [policies.login]
//!     rate = "5/min"
//!     count-rejected = true
//!
//!     [default]
//!     policies = ["per-client", "tokens"]
//!     costs = { tokens = 100 }
//!
//!     [routes."/search"]
//!     cost = 40
//!     on-store-failure = "closed"
//!
//!     [routes."POST /login"]
//!     policies = ["login"]
//!
//!     [routes."/healthz"]
//!     exempt = true
//! "#;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits: LimitsConfig = toml::from_str(FILE)?;
//! let layer = limits.layer(Limiter::new(MemoryStore::new()), GlobalKey)?;
//! let app =
//!     Router::new().route("/search", get(|| async { "found" })).layer(layer);
//!
//! let search = || {
//!     app.clone().oneshot(Request::get("/search").body(Body::empty()).unwrap())
//! };
//! assert_eq!(search().await?.headers()["x-ratelimit-remaining"], "20");
//! assert_eq!(search().await?.status(), StatusCode::TOO_MANY_REQUESTS);
//! # Ok(())
//! # }
//! ```
//!
//! Mistakes, all at once:
//!
//! ```
//! use tollgate::limits::LimitsConfig;
//!
//! let file = r#"
//!     [policies.per-client]
//!     rate = "60/min"
//!     [default]
//!     policies = ["per-clients"]
//!     [routes."/search"]
//!     cots = 10
//! "#;
//! let error = toml::from_str::<LimitsConfig>(file).unwrap_err();
//! let message = [
//!     "default.policies: no policy is called \"per-clients\"; \
//!      write one of \"per-client\"",
//!     r#"routes."/search".cots: no field has this name; did you mean cost?"#,
//! ];
//! assert_eq!(error.message(), message.join("\n"));
//! ```

mod calendar;
mod entry;
mod fields;
mod file;
mod live;
pub(crate) mod mistake;
mod policy;
mod section;
mod tree;
mod uncharged;

use self::uncharged::Warnings;
use crate::middleware::{RateLimitLayer, Route};
use crate::observe::{Event, Warning};
use crate::{
    error::ConfigError, failure::FailurePolicy, headers::HeaderStyle, key::KeyExtractor, limiter::Limiter,
    policy::Policy,
};

#[cfg(feature = "watch")]
pub use self::live::LimitsFileError;
pub use self::live::LiveLimits;

/// The JSON Schema (draft 2020-12) of a file of limits: the text of `docs/limits.schema.json`.
///
/// Editors complete and check the fields of a file with it. The schema knows the fields, their types, ranges and words.
/// A [`LimitsConfig`] also compares fields with each other, such as a cost with a limit.
///
/// # Examples
///
/// ```
/// let schema: serde_json::Value =
///     serde_json::from_str(tollgate::limits::schema()).unwrap();
/// assert_eq!(schema["properties"]["routes"]["type"], "object");
/// ```
pub fn schema() -> &'static str {
    include_str!("../../docs/limits.schema.json")
}

/// The limits of a file: policies, routes, costs, failure policies and header style. See the [module](super) for the
/// format.
///
/// Two values are equal if their files mean the same; the order of policies and routes in a file has no meaning.
///
/// It is read from a file by deserializing it. The error is that of the format, or its text has all mistakes of the
/// limits. Print the text: the `Debug` form of such an error, which a `main` prints, is that of the format's crate.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, PeerIp, limits::LimitsConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits: LimitsConfig = toml::from_str(
///     r#"
///         [policies.per-client]
///         rate = "60/min"
///         [default]
///         policies = ["per-client"]
///         [routes."/search"]
///         cost = 10
///     "#,
/// )?;
/// assert_eq!(limits.policy("per-client").map(|policy| policy.limit()), Some(60));
/// let layer = limits.layer(Limiter::new(MemoryStore::new()), PeerIp::new())?;
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LimitsConfig {
    /// By name.
    policies: Vec<Policy>,
    /// The names of the unlimited plans, in order.
    unlimited: Vec<String>,
    default: Charges,
    /// By name.
    routes: Vec<(String, Charges)>,
    headers: HeaderStyle,
    shadow: bool,
    warnings: Warnings,
}

/// What requests are charged: the default, or a route. `None` means the default's setting, or the default of the layer.
#[derive(Clone, Debug, PartialEq)]
struct Charges {
    is_exempt: bool,
    policies: Option<Vec<Policy>>,
    cost: Option<u64>,
    /// Costs under single policies, by policy name.
    costs: Vec<(String, u64)>,
    failure: Option<FailurePolicy>,
}

impl LimitsConfig {
    fn new(
        mut policies: Vec<Policy>,
        mut default: Charges,
        mut routes: Vec<(String, Charges)>,
        headers: HeaderStyle,
        shadow: bool,
        warnings: Warnings,
    ) -> Self {
        policies.sort_by(|one, other| one.name().cmp(other.name()));
        routes.sort_by(|(one, _), (other, _)| one.cmp(other));
        for charges in std::iter::once(&mut default).chain(routes.iter_mut().map(|(_, charges)| charges)) {
            charges.costs.sort();
        }
        Self { policies, unlimited: Vec::new(), default, routes, headers, shadow, warnings }
    }

    /// Adds the names of unlimited plans.
    fn with_unlimited(self, names: &[String]) -> Self {
        let mut unlimited = names.to_vec();
        unlimited.sort();
        Self { unlimited, ..self }
    }

    /// Creates a layer with these limits for the key that `key` extracts. Every setter of the layer applies to it: a
    /// rejection, a further key, the handling of missing keys.
    ///
    /// Layers of one `LimitsConfig` and one limiter share their budgets, because they share the policies.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the file has `on-store-failure = "local"` and the limiter has no [local
    /// fallback](Limiter::with_local_fallback), or if it charges a concurrency limit and the store has no holds. A
    /// checked file has no other error.
    pub fn layer<K: KeyExtractor>(
        &self,
        limiter: impl Into<Limiter>,
        key: K,
    ) -> Result<RateLimitLayer<K>, ConfigError> {
        let limiter = limiter.into();
        if let Some(listener) = limiter.listener() {
            let warnings = self.unreported_warnings().iter();
            warnings.for_each(|warning| listener.on_event(&Event::of_warning(warning.clone())));
        }
        self.unreported_layer(limiter, key)
    }

    /// As [`layer`](Self::layer), without a report of the warnings.
    pub(crate) fn unreported_layer<K: KeyExtractor>(
        &self,
        limiter: Limiter,
        key: K,
    ) -> Result<RateLimitLayer<K>, ConfigError> {
        let Charges { policies, cost, costs, failure, .. } = &self.default;
        let policies = policies.clone().unwrap_or_default();
        let mut layer = RateLimitLayer::new(limiter, policies, key).with_headers(self.headers).with_shadow(self.shadow);
        for (policy, cost) in costs {
            layer = layer.with_cost_of(policy, *cost);
        }
        if let Some(cost) = cost {
            layer = layer.with_cost(*cost);
        }
        layer = match failure.unwrap_or_default() {
            FailurePolicy::Closed => layer.fail_closed(),
            FailurePolicy::Local => layer.fail_local(),
            FailurePolicy::Open => layer.fail_open(),
        };
        let add = |layer: RateLimitLayer<K>, (name, charges): &(String, Charges)| layer.route(name, charges.route());
        self.routes.iter().fold(layer, add).validated()
    }

    /// What is probably wrong although the file can be used: policies that no request is charged under, in the order of
    /// the file. The first [`layer`](Self::layer) reports them to the limiter's observers, or as a line for each.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::limits::LimitsConfig;
    ///
    /// let limits: LimitsConfig = toml::from_str(
    ///     r#"
    ///         policies.per-client.rate = "60/min"
    ///         policies.login.rate = "5/min"
    ///         default.policies = ["per-client"]
    ///     "#,
    /// )?;
    /// assert!(
    ///     limits.warnings()[0]
    ///         .to_string()
    ///         .starts_with(r#"no entry of the limits charges policy "login""#)
    /// );
    /// # Ok::<(), toml::de::Error>(())
    /// ```
    pub fn warnings(&self) -> &[Warning] {
        self.warnings.all()
    }

    /// The warnings, for the first caller only.
    pub(crate) fn unreported_warnings(&self) -> &[Warning] {
        self.warnings.unreported()
    }

    /// The policy of this name, for checks without a layer. Ignores the case of the name.
    pub fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name().eq_ignore_ascii_case(name))
    }

    /// Whether a plan of this name is unlimited.
    #[cfg(feature = "plans")]
    pub(crate) fn has_unlimited(&self, name: &str) -> bool {
        self.unlimited.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// The policy of this name, which a plan needs.
    #[cfg(feature = "plans")]
    pub(crate) fn require(&self, name: &str) -> Result<&Policy, ConfigError> {
        if self.has_unlimited(name) {
            return Err(ConfigError::unlimited_default_plan());
        }
        self.policy(name).ok_or_else(|| {
            let known = mistake::nearest(name, self.policies().map(Policy::name));
            ConfigError::new(format!(
                "the limits have no policy {name:?}, which is a plan of `Plans::of_limits`; add it to the limits, or \
                 write one of {known}"
            ))
        })
    }

    /// All policies of the file, by name, whether or not a route uses them.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }
}

impl Charges {
    /// The settings of a route.
    fn route(&self) -> Route {
        let mut route = if self.is_exempt { Route::exempt() } else { Route::new() };
        if let Some(policies) = &self.policies {
            route = route.policies(policies.clone());
        }
        if let Some(cost) = self.cost {
            route = route.cost(cost);
        }
        for (policy, cost) in &self.costs {
            route = route.cost_of(policy, *cost);
        }
        match self.failure {
            None => route,
            Some(FailurePolicy::Closed) => route.fail_closed(),
            Some(FailurePolicy::Local) => route.fail_local(),
            Some(FailurePolicy::Open) => route.fail_open(),
        }
    }
}
