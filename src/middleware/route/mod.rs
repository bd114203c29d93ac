//! Settings by route: the table of [`RateLimitLayer::route`](crate::RateLimitLayer::route).

mod pattern;
mod table;

use std::sync::{Arc, atomic::AtomicBool};

use http::request::Parts;

use crate::cost::{Cost, NamedCosts};
use crate::failure::FailurePolicy;
use crate::policy::{PolicySource, SharedSource};

pub(crate) use self::table::RouteTable;

/// Settings of one route, for [`RateLimitLayer::route`](crate::RateLimitLayer::route).
///
/// A route takes each setting that is not set here from its layer.
///
/// # Examples
///
/// ```
/// use tollgate::{Policy, Route};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let search = Route::new().cost(10).fail_closed();
/// let login =
///     Route::new().policies(Policy::per_minute("login", 5)?).fail_closed();
/// let health = Route::exempt();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to `RateLimitLayer::route`"]
pub struct Route {
    cost: Option<Cost>,
    named_costs: NamedCosts,
    failure: Option<FailurePolicy>,
    policies: Option<SharedSource>,
    exempt: bool,
}

impl Route {
    /// Creates a route that takes all settings from its layer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Route;
    ///
    /// // The cost and the policies come from the layer, the failure policy does not.
    /// let export = Route::new().fail_closed();
    /// ```
    pub const fn new() -> Self {
        Self { cost: None, named_costs: NamedCosts::NONE, failure: None, policies: None, exempt: false }
    }

    /// Creates a route whose requests are not limited.
    ///
    /// Requests from addresses that [`ClientIp::deny`](crate::ClientIp::deny) lists are still refused, and so are
    /// requests whose address that `ClientIp` cannot read.
    ///
    /// Where the path itself is compared, a path that contains `.`, `..` or `//` is never exempt, because a server may
    /// rewrite such a path to the path of another route, and `/healthz/` is not exempt by an entry `/healthz`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, Route};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .route("/healthz", Route::exempt())
    /// .route("/static/{*rest}", Route::exempt())
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn exempt() -> Self {
        Self { exempt: true, ..Self::new() }
    }

    /// Sets the cost of each request, in units.
    ///
    /// A cost above the limit is a mistake of the layer, which
    /// [`RateLimitLayer::validated`](crate::RateLimitLayer::validated) returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Route;
    ///
    /// let search = Route::new().cost(10);
    /// ```
    pub fn cost(self, cost: u64) -> Self {
        Self { cost: Some(Cost::of_each(cost)), ..self }
    }

    /// Computes the cost of each request; see
    /// [`RateLimitLayer::with_cost_fn`](crate::RateLimitLayer::with_cost_fn).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Route;
    ///
    /// // A request with a filter costs less.
    /// let list = Route::new()
    ///     .cost_fn(|parts| if parts.uri.query().is_some() { 2 } else { 20 });
    /// ```
    pub fn cost_fn(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        Self { cost: Some(Cost::computed(cost)), ..self }
    }

    /// Sets the cost under the policy with the name `policy`, in place of every other cost; see
    /// [`RateLimitLayer::with_cost_of`](crate::RateLimitLayer::with_cost_of).
    ///
    /// The policy is one of this route, or one that the layer also charges on this route. A name that none of them has
    /// is a mistake of the layer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, Route};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = [
    ///     Policy::per_minute("requests", 60)?,
    ///     Policy::per_minute("tokens", 10_000)?,
    /// ];
    /// let limit =
    ///     RateLimitLayer::new(Limiter::new(MemoryStore::new()), policies, GlobalKey)
    ///         .route("/summary", Route::new().cost_of("tokens", 500))
    ///         .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cost_of(mut self, policy: &str, cost: u64) -> Self {
        self.named_costs.set(policy, Cost::of_each(cost));
        self
    }

    /// Counts the requests under `policies`, in place of the policies of the layer's first key.
    ///
    /// Takes the same types as [`RateLimitLayer::new`](crate::RateLimitLayer::new): a policy, an array or `Vec`, or a
    /// closure that chooses policies for each request.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{Key, Policy, Route};
    ///
    /// /// Inserted by authentication.
    /// #[derive(Clone)]
    /// struct PaidPlan;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let (free, paid) =
    ///     (Policy::per_minute("search", 5)?, Policy::per_minute("search", 100)?);
    /// let search = Route::new().policies(move |parts: &Parts, _: &Key| {
    ///     match parts.extensions.get::<PaidPlan>() {
    ///         Some(_) => paid.clone(),
    ///         None => free.clone(),
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn policies(self, policies: impl PolicySource) -> Self {
        Self { policies: Some(SharedSource::new(policies)), ..self }
    }

    /// Lets requests pass without a limit when the store cannot answer; see [`FailurePolicy::Open`].
    pub fn fail_open(self) -> Self {
        self.on_store_failure(FailurePolicy::Open)
    }

    /// Refuses requests with 503 when the store cannot answer; see [`FailurePolicy::Closed`].
    pub fn fail_closed(self) -> Self {
        self.on_store_failure(FailurePolicy::Closed)
    }

    /// Counts requests in the process, against the instance's share of the limit, when the store cannot answer; see
    /// [`FailurePolicy::Local`].
    ///
    /// [`RateLimitLayer::validated`](crate::RateLimitLayer::validated) returns an error unless the limiter has
    /// [a local fallback](crate::Limiter::with_local_fallback).
    pub fn fail_local(self) -> Self {
        self.on_store_failure(FailurePolicy::Local)
    }

    /// Sets what happens when the store cannot answer: for a policy that the settings of the service choose.
    pub fn on_store_failure(self, failure: FailurePolicy) -> Self {
        Self { failure: Some(failure), ..self }
    }
}

/// What applies to some requests: those of a [`Route`], or those of a layer that no route covers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) cost: Option<Cost>,
    pub(crate) failure: Option<FailurePolicy>,
    pub(crate) named_costs: NamedCosts,
    pub(crate) policies: Option<SharedSource>,
    pub(crate) exempt: bool,
    /// Whether one of the table's first requests has matched the route.
    pub(in crate::middleware) matched: Arc<AtomicBool>,
}

impl Route {
    /// The settings as the table stores them.
    pub(crate) fn into_settings(self) -> Settings {
        let Self { cost, named_costs, failure, policies, exempt } = self;
        Settings { cost, named_costs, failure, policies, exempt, matched: Arc::default() }
    }
}

impl Settings {
    /// These settings, and those of `base` where there are none.
    #[cfg(feature = "serde")]
    pub(in crate::middleware) fn over(&self, base: Self) -> Self {
        let own = self.clone();
        Self {
            cost: own.cost.or(base.cost),
            failure: own.failure.or(base.failure),
            named_costs: own.named_costs.over(base.named_costs),
            policies: own.policies.or(base.policies),
            exempt: own.exempt || base.exempt,
            matched: own.matched,
        }
    }
}
