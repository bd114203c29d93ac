//! Settings of the layer: how the holds of a request end.

use std::{marker::PhantomData, sync::Arc};

use http::response::Parts;

use super::{
    holding::{Settlement, Settling, WrappedBody},
    layer::RateLimitLayer,
};
use crate::policy::Policy;

impl<K, R, B> RateLimitLayer<K, R, B> {
    /// Holds the cost of a request, and charges it when the response shows what it was.
    ///
    /// The cost of the layer is then an estimate. Under each policy with [holds](crate::Policy::with_holds), it is held
    /// before the service runs, and counts in full meanwhile. `settle` gets the head of the response and decides how
    /// many units are charged: see [`Settlement`]. Policies without holds are charged as ever, in the same check.
    ///
    /// With [`Settlement::AtEnd`], the units are charged when the response body has ended, failed or been dropped:
    /// those that the handler has set in its [`Bill`](super::Bill) by then, or those that were held if it has set none.
    /// Each hold is settled exactly once. The response does not wait for the store: settlements are sent in the
    /// background.
    ///
    /// # Requests that fail
    ///
    /// If the service returns an error or panics, or the request goes away before it has a response, what its bill says
    /// is charged. Without a cost in the bill,
    /// [`HoldSettings::with_unsettled`](crate::policy::HoldSettings::with_unsettled) decides: the units are charged
    /// unless the policy says otherwise.
    ///
    /// Work that goes on after its request, in `spawn_blocking` or in a task, keeps the holds with a
    /// [`HoldGuard`](super::HoldGuard).
    ///
    /// # Nothing to settle
    ///
    /// Nothing is held, and nothing is charged later, for an exempt request, for a fixed cost of 0, and for a request
    /// that passes without a verdict of the store. If a closure computes a cost of 0, one unit is held, because clients
    /// choose what the closure reads.
    ///
    /// # Time-to-live
    ///
    /// The layer renews all holds of a request while it lives, so a response may take longer than the
    /// [time-to-live](crate::policy::HoldSettings::with_ttl). The holds of a process that is killed or stands still for
    /// longer end at their time-to-live: what was held is charged, or nothing if the policy releases it. If the
    /// response or its bill says more than that later, the rest is charged too. A [longest
    /// age](crate::policy::HoldSettings::with_longest) bounds how long a hold is renewed.
    ///
    /// # Bodies
    ///
    /// Bodies of axum carry the holds as they are. Around a service with other bodies, such as those of hyper or tonic,
    /// call [`with_held_body`](Self::with_held_body) too; without it, a request that holds units gets 500. The
    /// RateLimit fields are written before the body is sent, so they show the units that are held.
    ///
    /// # What it needs
    ///
    /// A store with holds, and a policy that has holds: without one, the layer would settle nothing, which is a
    /// [mistake](Self#mistakes). The layer does not add holds by itself, because checks elsewhere would not see them.
    ///
    /// # Examples
    ///
    /// Tokens of a model: an estimate is held, and the handler sets what it was.
    ///
    /// ```
    /// use http::{StatusCode, request, response};
    /// use tollgate::{
    ///     ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer, middleware::Settlement, policy::HoldSettings,
    /// };
    ///
    /// fn estimate(request: &request::Parts) -> u64 {
    ///     let length = request.headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok());
    ///     length.map_or(4_000, |bytes: u64| bytes / 4 + 1_000)
    /// }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let tokens = Policy::per_minute("tokens", 100_000)?.with_holds(HoldSettings::new());
    /// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), tokens, ApiKey::bearer())
    ///     .with_cost_fn(estimate)
    ///     .with_settlement(|response: &response::Parts| match response.status {
    ///         StatusCode::NOT_MODIFIED => Settlement::Nothing,
    ///         _ => Settlement::AtEnd,
    ///     })
    ///     .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "refund")]
    #[doc(alias = "streaming")]
    pub fn with_settlement(self, settle: impl Fn(&Parts) -> Settlement + Send + Sync + 'static) -> Self {
        self.settled(Settling::All(Arc::new(settle)))
    }

    /// As [`with_settlement`](Self::with_settlement), with an answer for each policy: for a layer whose policies count
    /// different units.
    ///
    /// The closure is called for each policy with holds, except concurrency limits. A handler that knows the costs puts
    /// them on the bill ([`Bill::set_cost_of`](super::Bill::set_cost_of)), with [`Settlement::AtEnd`] here.
    ///
    /// # Examples
    ///
    /// The upstream reports tokens in and out in two fields of its response:
    ///
    /// ```
    /// use http::response::Parts;
    /// use tollgate::{
    ///     ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer, middleware::Settlement, policy::HoldSettings,
    /// };
    ///
    /// fn usage(response: &Parts, policy: &Policy) -> Settlement {
    ///     let field = if policy.name() == "input-tokens" { "x-tokens-in" } else { "x-tokens-out" };
    ///     let tokens = response.headers.get(field).and_then(|tokens| tokens.to_str().ok()?.parse().ok());
    ///     tokens.map_or(Settlement::Held, Settlement::Units)
    /// }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policies = [
    ///     Policy::per_minute("input-tokens", 100_000)?.with_holds(HoldSettings::new()),
    ///     Policy::per_minute("output-tokens", 100_000)?.with_holds(HoldSettings::new()),
    /// ];
    /// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policies, ApiKey::bearer())
    ///     .with_cost_of("input-tokens", 1_000)
    ///     .with_cost_of("output-tokens", 4_000)
    ///     .with_settlement_by(usage)
    ///     .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_settlement_by(self, settle: impl Fn(&Parts, &Policy) -> Settlement + Send + Sync + 'static) -> Self {
        self.settled(Settling::Each(Arc::new(settle)))
    }

    fn settled(self, settling: Settling) -> Self {
        self.change(|config| config.settling = Some(settling)).change_rules(|rules| rules.settles = true)
    }

    /// Wraps the body of each response in a [`HeldBody`](super::HeldBody), which carries slots and units that are held:
    /// for services of hyper and tonic. Bodies of axum carry them as they are.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{
    ///     ConfigError, GrpcStatus, Limiter, PeerIp, Policy, RateLimitLayer, middleware::WrappedBody,
    /// };
    ///
    /// fn of_streams(limiter: Limiter) -> Result<RateLimitLayer<PeerIp, GrpcStatus, WrappedBody>, ConfigError> {
    ///     let streams = Policy::concurrent("streams", 10)?;
    ///     RateLimitLayer::new(limiter, streams, PeerIp::new())
    ///         .with_rejection(GrpcStatus::default())
    ///         .with_held_body()
    ///         .validated()
    /// }
    /// ```
    pub fn with_held_body(self) -> RateLimitLayer<K, R, WrappedBody> {
        RateLimitLayer { config: self.config, body: PhantomData }
    }
}
