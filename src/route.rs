//! What holds for one route: cost, failure policy, policies, or nothing at all.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Method, request::Parts};

use crate::{
    cost::{Cost, IntoCost, NamedCosts},
    error::ConfigError,
    failure::FailurePolicy,
    lookout::Countdown,
    observe::{Observer, Warning},
    policies::{PolicySource, SharedSource},
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
#[derive(Clone, Debug)]
#[must_use = "pass it to `RateLimitLayer::route`"]
pub struct Route {
    cost: Option<Result<Cost, ConfigError>>,
    named_costs: Vec<(String, Result<Cost, ConfigError>)>,
    failure: Option<FailurePolicy>,
    policies: Option<SharedSource>,
    exempt: bool,
}

impl Route {
    const INHERIT: Self = Self { cost: None, named_costs: Vec::new(), failure: None, policies: None, exempt: false };

    /// Requests to this route cost so much.
    pub fn cost(cost: impl IntoCost) -> Self {
        Self::INHERIT.with_cost(cost)
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
        Self::INHERIT.with_policies(policies)
    }

    /// Requests to this route are not limited.
    pub fn exempt() -> Self {
        Self { exempt: true, ..Self::INHERIT }
    }

    /// Requests to this route pass when the store cannot answer.
    pub fn open() -> Self {
        Self::INHERIT.fail_open()
    }

    /// Requests to this route are refused when the store cannot answer.
    pub fn closed() -> Self {
        Self::INHERIT.fail_closed()
    }

    /// Requests to this route are judged by the instance's share when the store cannot answer.
    pub fn local() -> Self {
        Self::INHERIT.fail_local()
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

    /// Judges requests by the instance's share when the store cannot answer; needs
    /// [`Limiter::with_local`](crate::Limiter::with_local).
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

/// The table of routes: by path, and by method and path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    by_path: HashMap<String, Methods>,
    lookout: Arc<Lookout>,
}

/// Shared by the layers that have this table.
#[derive(Debug)]
struct Lookout(Countdown);

/// Before this a route that is met now and then would be taken for one that never is.
const REQUESTS: u32 = 10_000;

impl Default for Lookout {
    fn default() -> Self {
        Self(Countdown::new(REQUESTS))
    }
}

/// A route's settings for any method, and for particular ones.
#[derive(Clone, Debug, Default)]
struct Methods {
    any: Option<Settings>,
    by_method: Vec<(Method, Settings)>,
}

impl Routes {
    pub(crate) fn insert(&mut self, route: &str, settings: Settings) -> Result<(), ConfigError> {
        let invalid = || ConfigError::InvalidRoute { route: route.to_owned() };
        let (method, path) = match route.split_once(' ') {
            // Methods are case-sensitive: `get` would be one that nobody sends.
            Some((method, path)) if !method.contains(char::is_lowercase) => {
                (Some(method.parse::<Method>().map_err(|_| invalid())?), path)
            }
            Some(_) => return Err(invalid()),
            None => (None, route),
        };
        if !path.starts_with('/') || path.contains(char::is_whitespace) {
            return Err(invalid());
        }
        let methods = self.by_path.entry(path.to_owned()).or_default();
        let taken = match &method {
            Some(method) => methods.by_method.iter().any(|(other, _)| other == method),
            None => methods.any.is_some(),
        };
        if taken {
            return Err(ConfigError::DuplicateRoute { route: route.to_owned() });
        }
        match method {
            Some(method) => methods.by_method.push((method, settings)),
            None => methods.any = Some(settings),
        }
        // Another table, with another beginning.
        self.lookout = Arc::default();
        Ok(())
    }

    /// Counts a request, and warns of the routes that none of the first ones was for.
    #[inline]
    pub(crate) fn look(&self, met: Option<&Settings>, observer: &dyn Observer) {
        if self.by_path.is_empty() || self.lookout.0.is_over() {
            return;
        }
        if let Some(settings) = met {
            settings.met.store(true, Ordering::Relaxed);
        }
        if self.lookout.0.count() {
            self.warn(observer);
        }
    }

    #[cold]
    fn warn(&self, observer: &dyn Observer) {
        for (path, Methods { any, by_method }) in &self.by_path {
            let by_method = by_method.iter().map(|(method, settings)| (format!("{method} {path}"), settings));
            let routes = by_method.chain(any.iter().map(|settings| (path.clone(), settings)));
            for (route, _) in routes.filter(|(_, settings)| !settings.met.load(Ordering::Relaxed)) {
                observer.on_warning(&Warning::UnmatchedRoute { route, requests: REQUESTS });
            }
        }
    }

    /// The settings of every route.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Settings> {
        let methods = self.by_path.values();
        methods.flat_map(|methods| methods.by_method.iter().map(|(_, settings)| settings).chain(&methods.any))
    }

    /// The request's settings; those with its method come before those without.
    pub(crate) fn resolve(&self, parts: &Parts) -> Option<&Settings> {
        if self.by_path.is_empty() {
            return None;
        }
        // Where no router has matched, a plain path can still be told.
        let path = matched_path(parts).unwrap_or_else(|| parts.uri.path());
        let methods = self.by_path.get(path)?;
        let of = |method: &Method| methods.by_method.iter().find(|(other, _)| other == method);
        // Handlers of GET answer HEAD as well, so it must not be a way around the settings of GET.
        let by_method = of(&parts.method).or_else(|| (parts.method == Method::HEAD).then(|| of(&Method::GET))?);
        by_method.map(|(_, settings)| settings).or(methods.any.as_ref())
    }
}

/// The route's template, `/users/{id}`, if a router has matched one.
#[cfg(feature = "axum")]
pub(crate) fn matched_path(parts: &Parts) -> Option<&str> {
    let path = parts.extensions.get::<axum::extract::MatchedPath>()?.as_str();
    // Not a route of the user's: newer versions of axum route their fallback through it.
    (!path.contains("__private__")).then_some(path)
}

/// Without a router that says so, no route is matched.
#[cfg(not(feature = "axum"))]
pub(crate) fn matched_path(_: &Parts) -> Option<&str> {
    None
}
