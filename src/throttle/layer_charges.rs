//! Settings of the layer: what a call is charged.

use std::sync::Arc;

use super::{
    layer::ThrottleLayer,
    request::{AndCost, IntoThrottleCost},
};
use crate::{error::ConfigError, key::Key, policy::Policy};

/// A layer with the cost of one more limit.
type WithLimit<K, C, D, H> = ThrottleLayer<K, AndCost<Arc<C>, D>, H>;

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
    /// let throttle = ThrottleLayer::new(Limiter::new(MemoryStore::new()), Policy::per_second("per-host", 10)?, "any")
    ///     .with_key(|request: &Request<String>| Key::from(request.uri().host().unwrap_or_default()));
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

    /// Sets the cost of a request: a number, or a closure over the request. Defaults to 1.
    ///
    /// A request whose computed cost is 0 is exempt: it is called at once, does not wait for a turn or a pause, and is
    /// not charged. A request whose computed cost is above the [capacity](Policy::capacity) of the policy is not called
    /// and ends in [`Throttled`](super::Throttled).
    ///
    /// A fixed cost is a [mistake](Self#mistakes) if it is 0, because the layer would throttle nothing, if it is
    /// negative, or if no call could ever be made with it. So is a call of `with_cost` after
    /// [`and_limit`](Self::and_limit), whose costs would be replaced too.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Method, Request};
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let throttle = ThrottleLayer::new(Limiter::new(MemoryStore::new()), Policy::per_day("quota", 9_500)?, "key1");
    /// let searches = throttle.clone().with_cost(100).validated()?;
    /// let all = throttle.with_cost(|request: &Request<String>| if request.method() == Method::GET { 1 } else { 50 });
    /// # let _ = (searches, all);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_cost<Form, T>(self, cost: T) -> ThrottleLayer<K, T::Cost, H>
    where
        T: IntoThrottleCost<Form>,
    {
        let Self { key, head, settings, .. } = self.change(|settings| {
            if !settings.further.is_empty() {
                let message = "the cost would replace those of the further limits; call `with_cost` before `and_limit`";
                settings.mistake.add(ConfigError::new(message));
            }
            settings.mistake.keep(cost.check_fixed(&settings.policy));
        });
        ThrottleLayer { key, cost: Arc::new(cost.into_throttle_cost()), head, settings }
    }

    /// Adds a further limit of the upstream, with the cost of a request under it: a number, or a closure over the
    /// request. A call waits until all limits have room, and is charged under all of them or under none.
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
    /// # fn tokens(_: &Request<String>) -> u32 { 1_200 }
    /// let (per_token, per_request) = (Policy::per_minute("tokens", 90_000)?, Policy::per_minute("requests", 500)?);
    /// let throttle = ThrottleLayer::new(Limiter::new(MemoryStore::new()), per_token, "account-1")
    ///     .with_cost(tokens)
    ///     .and_limit(per_request, 1)
    ///     .validated()?;
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn and_limit<Form, T>(self, policy: Policy, cost: T) -> WithLimit<K, C, T::Cost, H>
    where
        T: IntoThrottleCost<Form>,
    {
        let Self { key, cost: first, head, settings } = self.change(|settings| {
            settings.mistake.keep(policy.validate());
            if policy.is_concurrent() {
                settings.mistake.add(ConfigError::concurrency_needs_hold(policy.name()));
            }
            if settings.policies().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
                settings.mistake.add(ConfigError::duplicate_policy(policy.name()));
            }
            settings.mistake.keep(cost.check_fixed(&policy));
            settings.further.push(policy);
        });
        ThrottleLayer { key, cost: Arc::new(AndCost { first, last: cost.into_throttle_cost() }), head, settings }
    }
}
