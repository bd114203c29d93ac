//! Settings of the layer: the charges of a request.

use http::request::Parts;

use super::{config::KeyExtraction, layer::RateLimitLayer, route::Route};
use crate::policy::{PolicySource, SharedSource};
use crate::{cost::Cost, key::KeyExtractor};

impl<K, R, B> RateLimitLayer<K, R, B> {
    /// Sets the cost of each request, in units. Defaults to 1. A cost of 0 charges nothing, and passes unless the key
    /// is [banned](crate::Policy::ban_after).
    ///
    /// A cost that could never pass is a [mistake](Self#mistakes).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .with_cost(10)
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost(self, cost: u64) -> Self {
        self.change_rules(|rules| rules.layer.cost = Some(Cost::of_each(cost)))
    }

    /// Computes the cost of each request, in units, in place of a [fixed](Self::with_cost) cost. A request that costs
    /// more than the limit is refused with 400.
    ///
    /// The closure reads what the client sent. If a value is missing, return the largest cost instead of 0, because a
    /// client can omit any header. A layer that [settles](Self::with_settlement) holds at least one unit for a cost
    /// that a closure has computed, so that no client makes its request free.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Method;
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .with_cost_fn(|parts| if parts.method == Method::GET { 1 } else { 5 })
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A body of unknown length, sent in chunks, costs as much as the largest one:
    ///
    /// ```
    /// use http::{header::CONTENT_LENGTH, request::Parts};
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// /// The largest body that the service accepts, 1 MiB.
    /// const LARGEST: u64 = 1 << 20;
    ///
    /// fn bytes(parts: &Parts) -> u64 {
    ///     let length = parts
    ///         .headers
    ///         .get(CONTENT_LENGTH)
    ///         .and_then(|length| length.to_str().ok()?.parse().ok());
    ///     length.unwrap_or(LARGEST)
    /// }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let uploads = Policy::per_hour("uploads", 100 << 20)?;
    /// let limit =
    ///     RateLimitLayer::new(Limiter::new(MemoryStore::new()), uploads, GlobalKey)
    ///         .with_cost_fn(bytes);
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost_fn(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        let cost = Cost::computed(cost);
        self.change_rules(|rules| rules.layer.cost = Some(cost.clone()))
    }

    /// Sets the cost of each request under the policy with the name `policy`, in place of the plain cost of the layer
    /// and its routes. For example, a request costs one unit under `requests` and many under `tokens`.
    ///
    /// All costs are charged together or not at all. The policies of a layer have different names, so each
    /// [further key](Self::and) can have its own cost. A cost of 0 charges nothing under that policy. The cost that a
    /// [route](Route::cost_of) sets under the same name replaces the cost of the layer.
    ///
    /// A cost that could never pass that policy is a [mistake](Self#mistakes), and so is a name that no policy has. If
    /// a [`PolicySource`] chooses policies for each request, the name cannot be checked, and policies with other names
    /// are charged the plain cost.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies =
    ///     [Policy::per_minute("requests", 60)?, Policy::per_minute("images", 100)?];
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     policies,
    ///     ApiKey::bearer(),
    /// )
    /// .with_cost_of("images", 4)
    /// .validated()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost_of(self, policy: &str, cost: u64) -> Self {
        self.change_rules(|rules| rules.layer.named_costs.set(policy, Cost::of_each(cost)))
    }

    /// As [`with_cost_of`](Self::with_cost_of), with a closure that computes the cost of each request.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// /// Inserted by the layer that has read the prompt.
    /// #[derive(Clone)]
    /// struct Tokens(u64);
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let largest = 4_096;
    /// let policies = [
    ///     Policy::per_minute("requests", 60)?,
    ///     Policy::per_minute("tokens", 100_000)?,
    /// ];
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     policies,
    ///     ApiKey::bearer(),
    /// )
    /// .with_cost_of_fn("tokens", move |parts| {
    ///     parts.extensions.get::<Tokens>().map_or(largest, |tokens| tokens.0)
    /// })
    /// .validated()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost_of_fn(self, policy: &str, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        let cost = Cost::computed(cost);
        self.change_rules(|rules| rules.layer.named_costs.set(policy, cost.clone()))
    }

    /// Replaces the policies of the first key; policies that [`and`](Self::and) has added stay.
    ///
    /// The [costs of single policies](Self::with_cost_of) stay too, and need a policy of their name.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policy = Policy::per_minute("per-client", 60)?;
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     policy,
    ///     PeerIp::new(),
    /// );
    /// let login = limit.clone().with_policies(Policy::per_minute("login", 5)?);
    /// # let _ = login;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_policies(self, policies: impl PolicySource) -> Self {
        let policies = SharedSource::new(policies);
        self.change_rules(|rules| rules.layer.policies = Some(policies.clone()))
    }

    /// Adds a further key: each request is also charged to the key that `key` extracts, under `policies`.
    ///
    /// All keys are charged together or not at all. A request that is exempt from one key is charged to the others. Two
    /// policies of one name are a [mistake](Self#mistakes).
    ///
    /// # Examples
    ///
    /// Each tenant has a budget, and so has each address of its users:
    ///
    /// ```
    /// use tollgate::{HeaderKey, MemoryStore, PeerIp, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let per_address = Policy::per_minute("per-address", 60)?;
    /// let per_tenant = Policy::per_minute("per-tenant", 6_000)?;
    /// let limit = RateLimitLayer::new(MemoryStore::new(), per_address, PeerIp::new())
    ///     .and(per_tenant, HeaderKey::new("x-tenant")?)
    ///     .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn and(self, policies: impl PolicySource, key: impl KeyExtractor) -> Self {
        self.and_extracted(policies, KeyExtraction::of(key, false))
    }

    /// Adds a further key that some requests do not have: such a request is limited by the other keys alone, whatever
    /// [`on_missing_key`](Self::on_missing_key) says. Otherwise as [`and`](Self::and).
    ///
    /// # Examples
    ///
    /// Anonymous requests are limited by address alone:
    ///
    /// ```
    /// use tollgate::{ExtensionKey, Key, MemoryStore, PeerIp, Policy, RateLimitLayer};
    /// # #[derive(Clone)]
    /// # struct User(u64);
    /// # impl From<&User> for Key {
    /// #     fn from(user: &User) -> Key { Key::from(user.0) }
    /// # }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let per_address = Policy::per_minute("per-address", 600)?;
    /// let per_user = Policy::per_minute("per-user", 60)?;
    /// let limit = RateLimitLayer::new(MemoryStore::new(), per_address, PeerIp::new())
    ///     .and_optional(per_user, ExtensionKey::<User>::new())
    ///     .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn and_optional(self, policies: impl PolicySource, key: impl KeyExtractor) -> Self {
        self.and_extracted(policies, KeyExtraction::of(key, true))
    }

    fn and_extracted(self, policies: impl PolicySource, key: KeyExtraction<dyn KeyExtractor>) -> Self {
        let policies = SharedSource::new(policies);
        self.change(|config| config.others.push(key)).change_rules(|rules| rules.others.push(policies.clone()))
    }

    /// Sets the settings of one route, in place of the layer's own settings.
    ///
    /// A table of routes keeps the settings of a service in one place, also where the router is built elsewhere. What
    /// a [`Route`] cannot say, such as another rejection or a settlement, is a layer of that route, derived from this
    /// one: `get(search).layer(limit.clone().with_cost(10))`. Both spend from one budget.
    ///
    /// Where a layer with a table is around such a route, both charge the request. So the route is
    /// [exempt](Route::exempt) in the table. A layer that is derived afterwards has the entries of the table, too, and
    /// would be exempt itself: derive it first. See the second [example](#routes-with-a-layer-of-their-own).
    ///
    /// | entry | covers |
    /// | --- | --- |
    /// | `"/search"` | this path, with all methods |
    /// | `"POST /login"` | this path with POST; settings of one method come before settings of all methods |
    /// | `"/users/{id}"` | this template, whatever the name of the parameter; one segment of a plain path |
    /// | `"/mcp/{*rest}"` | `/mcp`, `/mcp/` and everything below, both templates and plain paths |
    ///
    /// The most specific entry applies, segment by segment as in the router: text before a parameter, a parameter
    /// before `{*rest}`. If that entry has no settings for the request's method, the next entry applies.
    ///
    /// Settings for `GET` also apply to `HEAD`, and to `CONNECT` with a path, which opens a WebSocket over HTTP/2
    /// (RFC 8441), unless the method has its own settings.
    ///
    /// # Compared path
    ///
    /// The entry is compared with axum's `MatchedPath`, so the position of the layer does not matter: write the whole
    /// template, nesting included (`/api/users/{id}`). The whole path that the client has sent is compared where no
    /// router has matched the request: in a fallback, in front of a `Router`, or with plain hyper. It is also compared
    /// where the matched template ends in a wildcard, because the service behind it routes by the path: below
    /// `nest_service`, and for the methods of a gRPC service (`"/grpc.health.v1.Health/Check"`).
    ///
    /// Slashes at the end are ignored, in the entry and in the request, and repeated slashes in a plain path count as
    /// one slash, so that no spelling avoids an entry. An exempt entry, or one whose requests cost less than those of
    /// the entry that covers the path as it was sent, covers no other spelling: axum serves `/files/special/` as a path
    /// of `/files/{*rest}`. Everything else is compared as the client has sent it. A layer that rewrites paths must be
    /// outside this layer and outside the router; otherwise this layer compares another path than the router serves.
    /// `tower_http`'s `NormalizePath` removes slashes at the end and repeated slashes at the beginning, and nothing
    /// else:
    ///
    /// | plain path | covered by the entry `"/a/search"`? |
    /// | --- | --- |
    /// | `/a/search/` | yes, with or without `NormalizePath` |
    /// | `//a/search` | yes, with or without `NormalizePath`; without `NormalizePath` axum answers with 404 |
    /// | `/a//search` | yes; axum answers with 404, `NormalizePath` or not |
    /// | `/a/./search`, `/a/search/.`, `/x/../a/search` | no; axum answers with 404, `NormalizePath` or not |
    /// | `/a/search;x` | no; axum answers with 404, `NormalizePath` or not |
    /// | `/a/%73earch` | no; axum answers with 404, `NormalizePath` or not |
    ///
    /// Behind `nest_service` or plain hyper, a service may treat the paths of the last three rows as `/a/search`. The
    /// settings for such a request come from the entry that covers the path as sent, or from the layer itself. Give the
    /// service an entry that covers all its paths, `"/a/{*rest}"`, or rewrite the path in a layer outside this one.
    ///
    /// An [exempt](Route::exempt) entry does not cover a plain path that contains `.`, `..` or an empty segment,
    /// percent-encoded or not: `"/static/{*rest}"` does not exempt `/static/../login`. The next entry that covers the
    /// path applies, or the layer's own settings.
    ///
    /// # Wrong routes
    ///
    /// A route that is not valid in axum 0.8, or for which the layer has settings already, is a
    /// [mistake](Self#mistakes). The message says what to write.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, Route};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let limit = RateLimitLayer::new(
    ///     limiter,
    ///     Policy::per_minute("per-client", 60)?,
    ///     PeerIp::new(),
    /// )
    /// .route("/mcp/{*rest}", Route::new().cost(10))
    /// .route(
    ///     "POST /login",
    ///     Route::new().policies(Policy::per_minute("login", 5)?).fail_closed(),
    /// )
    /// .route("/healthz", Route::exempt())
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Routes with a layer of their own
    ///
    /// The requests of `/generate` are settled, and charged once:
    ///
    /// ```
    /// use tollgate::{
    ///     ConfigError, PeerIp, RateLimitLayer, Route, middleware::Settlement,
    /// };
    ///
    /// /// The layer of the route, derived first, and the table around all routes.
    /// fn layers(
    ///     limit: RateLimitLayer<PeerIp>,
    /// ) -> Result<[RateLimitLayer<PeerIp>; 2], ConfigError> {
    ///     let generate = limit
    ///         .clone()
    ///         .with_cost(1_500)
    ///         .with_settlement(|_| Settlement::AtEnd)
    ///         .validated()?;
    ///     let table = limit
    ///         .route("/search", Route::new().cost(10))
    ///         .route("/generate", Route::exempt())
    ///         .validated()?;
    ///     Ok([generate, table])
    /// }
    /// ```
    pub fn route(self, route: &str, settings: Route) -> Self {
        self.change_rules(|rules| rules.add_route(route, settings.clone()))
    }
}
