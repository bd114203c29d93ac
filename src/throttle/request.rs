//! What an outbound request is charged: its key and its cost.

use std::sync::Arc;

use crate::{error::ConfigError, key::Key, policy::Policy};

/// Finds the key of an outbound request: a [`Key`] for all requests, or a closure `Fn(&Req) -> Key`.
///
/// Requests with equal keys wait in one queue, spend from one budget and obey one pause. Take the key from what the
/// upstream counts by: the account, the API key or the host.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::{Key, throttle::ThrottleKey};
///
/// let by_host = |request: &Request<()>| Key::from(request.uri().host().unwrap_or_default());
/// let request = Request::get("http://api.example/users").body(())?;
/// assert_eq!(by_host.key(&request), Key::from("api.example"));
/// assert_eq!(Key::from("account-1").key(&request), Key::from("account-1"));
/// # Ok::<(), http::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the key of a request of type `{Req}`",
    label = "expected a `Key`, or a closure `|request: &{Req}| Key::from(..)`"
)]
pub trait ThrottleKey<Req> {
    /// The key of `request`.
    fn key(&self, request: &Req) -> Key;
}

impl<Req> ThrottleKey<Req> for Key {
    fn key(&self, _: &Req) -> Key {
        self.clone()
    }
}

impl<Req, F: Fn(&Req) -> Key> ThrottleKey<Req> for F {
    fn key(&self, request: &Req) -> Key {
        self(request)
    }
}

/// Finds the cost of an outbound request in units: a `u32` for all requests, or a closure `Fn(&Req) -> u32`.
///
/// # Examples
///
/// ```
/// use http::{Method, Request};
/// use tollgate::throttle::ThrottleCost;
///
/// let cost = |request: &Request<()>| if request.method() == Method::GET { 1 } else { 5 };
/// assert_eq!(cost.cost(&Request::new(())), 1);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the cost of a request of type `{Req}`",
    label = "expected a number, or a closure `|request: &{Req}| 1_u32`"
)]
pub trait ThrottleCost<Req> {
    /// The cost of `request`. A request of cost 0 is exempt.
    fn cost(&self, request: &Req) -> u32;

    /// The costs of `request` under the further limits of the layer, in their order.
    fn further_costs(&self, request: &Req) -> Vec<u32> {
        let _ = request;
        Vec::new()
    }
}

/// The costs of a request under several limits, made by [`ThrottleLayer::and_limit`](crate::ThrottleLayer::and_limit).
#[derive(Clone, Copy, Debug)]
pub struct AndCost<C, D> {
    pub(super) first: C,
    pub(super) last: D,
}

impl<Req, C: ThrottleCost<Req>, D: ThrottleCost<Req>> ThrottleCost<Req> for AndCost<C, D> {
    fn cost(&self, request: &Req) -> u32 {
        self.first.cost(request)
    }

    fn further_costs(&self, request: &Req) -> Vec<u32> {
        let mut costs = self.first.further_costs(request);
        costs.push(self.last.cost(request));
        costs
    }
}

impl<Req, C: ThrottleCost<Req>> ThrottleCost<Req> for Arc<C> {
    fn cost(&self, request: &Req) -> u32 {
        (**self).cost(request)
    }

    fn further_costs(&self, request: &Req) -> Vec<u32> {
        (**self).further_costs(request)
    }
}

impl<Req> ThrottleCost<Req> for u32 {
    fn cost(&self, _: &Req) -> u32 {
        *self
    }
}

impl<Req, F: Fn(&Req) -> u32> ThrottleCost<Req> for F {
    fn cost(&self, request: &Req) -> u32 {
        self(request)
    }
}

/// What [`ThrottleLayer::with_cost`](crate::ThrottleLayer::with_cost) takes: a number, or a closure `Fn(&Req) -> u32`.
///
/// `Form` tells numbers and closures apart. The compiler infers it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a cost of outbound requests",
    label = "expected a number, or a closure `|request: &Request| 1_u32` with the type of the request",
    note = "convert other integers with `u32::try_from(..)`"
)]
pub trait IntoThrottleCost<Form> {
    /// The stored form, a [`ThrottleCost`].
    type Cost;

    /// Converts into the stored form.
    fn into_throttle_cost(self) -> Self::Cost;

    /// Checks a cost that is the same for every request, under `policy`. A closure has no mistake before a request.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for a number that cannot be a cost, see
    /// [`ThrottleLayer::with_cost`](crate::ThrottleLayer::with_cost).
    fn check_fixed(&self, policy: &Policy) -> Result<(), ConfigError> {
        let _ = policy;
        Ok(())
    }
}

impl IntoThrottleCost<()> for u32 {
    type Cost = u32;

    fn into_throttle_cost(self) -> u32 {
        self
    }

    fn check_fixed(&self, policy: &Policy) -> Result<(), ConfigError> {
        if *self == 0 {
            return Err(ConfigError::of_policy(
                policy.name(),
                "a cost of 0 would throttle nothing; use 1 or more, or a closure that returns 0 for the requests to \
                 exempt",
            ));
        }
        policy.check_cost(*self)
    }
}

impl IntoThrottleCost<()> for i32 {
    type Cost = u32;

    /// For integer literals, whose default type is `i32`. No layer charges a negative number, which is a mistake.
    fn into_throttle_cost(self) -> u32 {
        self.unsigned_abs()
    }

    fn check_fixed(&self, policy: &Policy) -> Result<(), ConfigError> {
        u32::try_from(*self).map_err(|_| ConfigError::negative_cost(*self))?.check_fixed(policy)
    }
}

impl<Req, F: Fn(&Req) -> u32> IntoThrottleCost<fn(&Req)> for F {
    type Cost = F;

    fn into_throttle_cost(self) -> F {
        self
    }
}
