//! What holds for one route: cost, failure policy, policies, or nothing at all.

mod clean;
mod pattern;
mod table;
mod tree;

use std::sync::{Arc, atomic::AtomicBool};

pub(crate) use self::table::Routes;
use crate::{
    cost::{Cost, IntoCost, NamedCosts},
    error::ConfigError,
    failure::FailurePolicy,
    policy::{PolicySource, SharedSource},
};

/// Settings of one route in [`RateLimitLayer::route`](crate::RateLimitLayer::route).
///
/// What is not set is the layer's.
///
/// # Examples
///
/// ```
/// use tollgate::{Policy, Route};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let search = Route::cost(10).fail_closed();
/// let login = Route::policy(Policy::per_minute("login", 5)?).fail_closed();
/// let health = Route::exempt();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to `RateLimitLayer::route`"]
pub struct Route {
    cost: Option<Result<Cost, ConfigError>>,
    named_costs: Vec<(String, Result<Cost, ConfigError>)>,
    failure: Option<FailurePolicy>,
    policies: Option<SharedSource>,
    exempt: bool,
}

impl Route {
    /// A route with the settings of its layer.
    pub const fn new() -> Self {
        Self { cost: None, named_costs: Vec::new(), failure: None, policies: None, exempt: false }
    }

    /// Requests to this route cost so much.
    pub fn cost(cost: impl IntoCost) -> Self {
        Self::new().with_cost(cost)
    }

    /// Requests to this route are counted under policies of their own, instead of those of the layer's first key.
    ///
    /// Takes all that [`RateLimitLayer::new`](crate::RateLimitLayer::new) takes: a policy, an array or `Vec`, or a
    /// closure that chooses them for each request.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::request::Parts;
    /// use tollgate::{Key, Policy, Route};
    ///
    /// /// Set by authentication.
    /// #[derive(Clone)]
    /// struct PaidPlan;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let (free, paid) = (Policy::per_minute("search-free", 5)?, Policy::per_minute("search-paid", 100)?);
    /// let search = Route::policy(move |parts: &Parts, _: &Key| match parts.extensions.get::<PaidPlan>() {
    ///     Some(_) => paid.clone(),
    ///     None => free.clone(),
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn policy(policies: impl PolicySource) -> Self {
        Self::new().with_policies(policies)
    }

    /// Requests to this route are not limited. Addresses that [`ClientIp::deny`](crate::ClientIp::deny) names are refused
    /// even so, and so are requests whose header hides the address.
    ///
    /// Where no router has matched the request, a path with `.`, `..` or `//` in it is never exempt, because a server
    /// may serve another route's path in its place.
    pub fn exempt() -> Self {
        Self { exempt: true, ..Self::new() }
    }

    /// Sets the cost.
    pub fn with_cost(self, cost: impl IntoCost) -> Self {
        Self { cost: Some(cost.into_cost()), ..self }
    }

    /// Sets the cost under the policy called `policy`, in place of every other cost; see
    /// [`RateLimitLayer::with_cost_of`](crate::RateLimitLayer::with_cost_of).
    ///
    /// The name may be that of a policy of this route, or of one that the layer also charges on it.
    pub fn with_cost_of(mut self, policy: &str, cost: impl IntoCost) -> Self {
        self.named_costs.push((policy.to_owned(), cost.into_cost()));
        self
    }

    /// Sets the policies. Takes all that [`Route::policy`] takes.
    pub fn with_policies(self, policies: impl PolicySource) -> Self {
        Self { policies: Some(SharedSource::new(policies)), ..self }
    }

    /// Lets requests pass when the store cannot answer.
    pub fn fail_open(self) -> Self {
        Self { failure: Some(FailurePolicy::Open), ..self }
    }

    /// Refuses requests when the store cannot answer.
    pub fn fail_closed(self) -> Self {
        Self { failure: Some(FailurePolicy::Closed), ..self }
    }

    /// Judges requests by the instance's share when the store cannot answer. The layer refuses such a route unless its limiter
    /// has [a local fallback](crate::Limiter::with_local).
    pub fn fail_local(self) -> Self {
        Self { failure: Some(FailurePolicy::Local), ..self }
    }
}

/// A [`Route`] whose settings have been checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) cost: Option<Cost>,
    pub(crate) failure: Option<FailurePolicy>,
    pub(crate) named_costs: NamedCosts,
    pub(crate) policies: Option<SharedSource>,
    pub(crate) exempt: bool,
    /// Whether a request has come, as long as that is looked for.
    met: Arc<AtomicBool>,
}

impl TryFrom<Route> for Settings {
    type Error = ConfigError;

    fn try_from(route: Route) -> Result<Self, ConfigError> {
        let Route { cost, named_costs: given, failure, policies, exempt } = route;
        if policies.as_ref().and_then(|policies| policies.fixed()).is_some_and(<[_]>::is_empty) {
            return Err(ConfigError::NoPolicy);
        }
        let mut named_costs = NamedCosts::default();
        for (policy, cost) in given {
            named_costs.set(&policy, cost?);
        }
        Ok(Self { cost: cost.transpose()?, failure, named_costs, policies, exempt, met: Arc::default() })
    }
}
