//! What an outbound request is charged: its key and its cost.

use std::sync::Arc;

use crate::{error::ConfigError, key::Key, policy::Policy};

/// Finds the key of an outbound request: a [`Key`] for all requests, or a closure `Fn(&Req) -> Key`. Not exported,
/// because only this crate implements it.
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

/// Finds the cost of an outbound request in units: a `u64` for all requests, a closure `Fn(&Req) -> u64`, or these and
/// a closure for a further limit. Not exported, because only this crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find the cost of a request of type `{Req}`",
    label = "expected a number, or a closure `|request: &{Req}| 1_u64`"
)]
pub trait ThrottleCost<Req> {
    /// The cost of `request`. A request of cost 0 is exempt.
    fn cost(&self, request: &Req) -> u64;

    /// Adds the costs of `request` under the further limits whose cost is computed, in their order.
    fn further_costs(&self, request: &Req, costs: &mut Vec<u64>) {
        let _ = (request, costs);
    }
}

impl<Req> ThrottleCost<Req> for u64 {
    fn cost(&self, _: &Req) -> u64 {
        *self
    }
}

impl<Req, F: Fn(&Req) -> u64> ThrottleCost<Req> for F {
    fn cost(&self, request: &Req) -> u64 {
        self(request)
    }
}

/// A cost, and the cost under a further limit.
impl<Req, C: ThrottleCost<Req>, F: Fn(&Req) -> u64> ThrottleCost<Req> for (Arc<C>, F) {
    fn cost(&self, request: &Req) -> u64 {
        C::cost(&self.0, request)
    }

    fn further_costs(&self, request: &Req, costs: &mut Vec<u64>) {
        C::further_costs(&self.0, request, costs);
        costs.push(self.1(request));
    }
}

/// Checks a cost that is the same for every request, under `policy`.
///
/// # Errors
///
/// [`ConfigError`] for a number that cannot be a cost.
pub(super) fn check_fixed(cost: u64, policy: &Policy) -> Result<(), ConfigError> {
    if cost == 0 {
        return Err(ConfigError::of_policy(
            policy.name(),
            "a cost of 0 would throttle nothing; use 1 or more, or a closure that returns 0 for the requests to exempt",
        ));
    }
    policy.check_cost(cost)
}
