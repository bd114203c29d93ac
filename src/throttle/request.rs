//! What an outbound request is charged: its key and its cost, and the settings of the layer for them.

use std::sync::Arc;

use super::layer::ThrottleLayer;
use super::settings::{FurtherLimit, Settings};
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
fn check_fixed(cost: u64, policy: &Policy) -> Result<(), ConfigError> {
    if cost == 0 {
        return Err(ConfigError::of_policy(
            policy.name(),
            "a cost of 0 would throttle nothing; use 1 or more, or a closure that returns 0 for the requests to exempt",
        ));
    }
    policy.check_cost(cost)
}

impl<K, C, H> ThrottleLayer<K, C, H> {
    /// Sets the key of each request, in place of the one key of [`new`](ThrottleLayer::new).
    ///
    /// Each key has its own queue, budget and pause. State of a key that no call uses is dropped.
    ///
    /// # Examples
    ///
    /// One budget per host:
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{Key, Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let throttle = ThrottleLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_second("per-host", 10)?,
    ///     "any",
    /// )
    /// .with_key(|request: &Request<String>| {
    ///     Key::from(request.uri().host().unwrap_or_default())
    /// });
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_key<Req, F>(self, key: F) -> ThrottleLayer<F, C, H>
    where
        F: Fn(&Req) -> Key,
    {
        let Self { key: _, cost, head, settings } = self;
        ThrottleLayer { key: Arc::new(key), cost, head, settings }
    }

    /// Sets the cost of each request. Defaults to 1.
    ///
    /// A cost is a [mistake](Self#mistakes) if it is 0, because the layer would throttle nothing, or if no call could
    /// ever be made with it. So is a call of `with_cost` after [`and_limit`](Self::and_limit).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let quota = Policy::per_day("quota", 9_500)?;
    /// let searches =
    ///     ThrottleLayer::new(Limiter::new(MemoryStore::new()), quota, "key1")
    ///         .with_cost(100)
    ///         .validated()?;
    /// # let _ = searches;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost(self, cost: u64) -> ThrottleLayer<K, u64, H> {
        self.replace_cost(cost).change(|settings| {
            settings.mistake.keep(check_fixed(cost, &settings.policy));
        })
    }

    /// Computes the cost of each request, in place of a [fixed](Self::with_cost) cost.
    ///
    /// A request of cost 0 is exempt: it is called at once, does not wait for a turn or a pause, and is not charged. A
    /// request whose cost is above the [capacity](Policy::capacity) of the policy is not called and ends in
    /// [`Throttled`](super::Throttled).
    ///
    /// A call of `with_cost_fn` after [`and_limit`](Self::and_limit) is a [mistake](Self#mistakes).
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Method, Request};
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let throttle = ThrottleLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_day("quota", 9_500)?,
    ///     "key1",
    /// )
    /// .with_cost_fn(
    ///     |request: &Request<String>| {
    ///         if request.method() == Method::GET { 1 } else { 50 }
    ///     },
    /// );
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost_fn<Req, F>(self, cost: F) -> ThrottleLayer<K, F, H>
    where
        F: Fn(&Req) -> u64,
    {
        self.replace_cost(cost)
    }

    fn replace_cost<T>(self, cost: T) -> ThrottleLayer<K, T, H> {
        let Self { key, head, settings, .. } = self.change(|settings| {
            if !settings.further.is_empty() {
                let message = "the cost would replace those of the further limits; call `with_cost` before `and_limit`";
                settings.mistake.add(ConfigError::new(message));
            }
        });
        ThrottleLayer { key, cost: Arc::new(cost), head, settings }
    }

    /// Adds a further limit of the upstream, with the cost of each request under it. A call waits until all limits have
    /// room, and is charged under all of them or under none.
    ///
    /// All limits have the same key. Calls wait in the queue of the first policy, the one of
    /// [`new`](ThrottleLayer::new), so let it be the one that delays most calls: see
    /// [`Acquire::and`](crate::limiter::Acquire::and). A request whose cost is 0 under the first policy is exempt from
    /// all limits.
    ///
    /// The [mistakes](Self#mistakes) of [`with_cost`](Self::with_cost), for this policy. A second policy of one name is
    /// one too, and so is a [concurrency limit](Policy::concurrent), which has to be the first policy.
    ///
    /// # Examples
    ///
    /// 90 000 tokens and 500 requests a minute:
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # fn tokens(_: &Request<String>) -> u64 { 1_200 }
    /// let (per_token, per_request) = (
    ///     Policy::per_minute("tokens", 90_000)?,
    ///     Policy::per_minute("requests", 500)?,
    /// );
    /// let throttle = ThrottleLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     per_token,
    ///     "account-1",
    /// )
    /// .with_cost_fn(tokens)
    /// .and_limit(per_request, 1)
    /// .validated()?;
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn and_limit(self, policy: Policy, cost: u64) -> Self {
        self.change(|settings| {
            let checked = check_fixed(cost, &policy);
            add_limit(settings, policy, Some(cost));
            settings.mistake.keep(checked);
        })
    }

    /// As [`and_limit`](Self::and_limit), with a closure that computes the cost of each request.
    ///
    /// The cost in the layer's type is then a pair: the cost before, and this closure.
    pub fn and_limit_fn<Req, F>(self, policy: Policy, cost: F) -> ThrottleLayer<K, (Arc<C>, F), H>
    where
        F: Fn(&Req) -> u64,
    {
        let Self { key, cost: others, head, settings } = self.change(|settings| add_limit(settings, policy, None));
        ThrottleLayer { key, cost: Arc::new((others, cost)), head, settings }
    }
}

/// Adds a further limit. Without a cost, a closure computes it.
fn add_limit(settings: &mut Settings, policy: Policy, cost: Option<u64>) {
    settings.mistake.keep(policy.validate());
    if policy.is_concurrent() {
        settings.mistake.add(ConfigError::concurrency_needs_hold(policy.name()));
    }
    if settings.policies().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
        settings.mistake.add(ConfigError::duplicate_policy(policy.name()));
    }
    settings.further.push(FurtherLimit { policy, cost });
}
