//! Settings of the layer: what happens without a verdict or a key, and the form of the responses.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use super::layer::RateLimitLayer;
use crate::headers::{HeaderWriter, whole_seconds};
use crate::{error::ConfigError, failure::FailurePolicy, key::MissingKey};

impl<K, R, B> RateLimitLayer<K, R, B> {
    /// Lets a request that would be denied wait for its turn, for at most `max_wait`, in place of a refusal. Requests
    /// are spaced instead of refused, as by nginx with a `burst`.
    ///
    /// By default no request waits, because most clients would rather know at once.
    ///
    /// # Order
    ///
    /// Requests that wait for the same key are served first come, first served, in this process. The rate is that of
    /// all processes, and each has a queue of its own: they take turns, so more requests wait in all, and those that
    /// lose may be refused only when their wait is over. See [`Limiter::acquire`](crate::Limiter::acquire), whose queue
    /// this is. Requests of routes that [fail local](Self::fail_local) have a queue of their own, because an outage
    /// treats them differently.
    ///
    /// A request is refused at once if its wait is certain to be longer than `max_wait`, or if too many wait already
    /// ([`Limiter::with_max_waiters`](crate::Limiter::with_max_waiters): 10 000 for a key by default). Retry-After then
    /// says when it may pass; under a log or a counter, each refusal asks the store for it. The wait of a request that
    /// has a place may end later than `max_wait`, by a tenth or by 10 ms, whichever is longer, and by the check that is
    /// on its way then: each admission before it may be late.
    ///
    /// A request whose client hangs up leaves the queue. While a request waits, the service keeps its connection and
    /// its body, so choose a `max_wait` that is shorter than the timeouts of clients and proxies. A request that
    /// waits takes no place in the service behind the layer, such as a permit of tower's `ConcurrencyLimit`.
    ///
    /// # Choosing a policy
    ///
    /// A [token bucket](crate::Algorithm::TokenBucket) gives an even flow: 10 a second with a burst of 1, and a
    /// `max_wait` of 500 ms, is `rate=10r/s` with `burst=5`. A sliding window log frees its units a window later, so a
    /// burst waits only if `max_wait` is as long as the window.
    ///
    /// A request waits for one limit: a layer with several policies or keys is a [mistake](Self#mistakes), because a
    /// request that waits for a limit of its own would hold back those of others. Further limits belong into another
    /// layer. So are a [settlement](Self::with_settlement), a [concurrency limit](crate::Policy::concurrent), a
    /// [ban](crate::Policy::ban_after), counted denials, and a `max_wait` of zero. If a
    /// [`PolicySource`](crate::policy::PolicySource) chooses such policies for a request, it does not wait.
    ///
    /// # Without a verdict
    ///
    /// If the store gives no verdict on a request whose turn has come, the failure policy decides. Those behind it
    /// follow, each after the store's deadline, and at once when the breaker has opened. With
    /// [`fail_open`](Self::fail_open), the default, all that wait pass then.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, MemoryStore, PeerIp, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policy = Policy::per_second("searches", 10)?
    ///     .with_algorithm(Algorithm::TokenBucket)
    ///     .with_burst(1);
    /// let limit = RateLimitLayer::new(MemoryStore::new(), policy, PeerIp::new())
    ///     .wait_up_to(Duration::from_millis(500))
    ///     .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "burst")]
    #[doc(alias = "delay")]
    pub fn wait_up_to(self, max_wait: Duration) -> Self {
        self.change_rules(|rules| {
            rules.max_wait = Some(max_wait);
            if max_wait.is_zero() {
                let message = "a request that waits for at most 0 s does not wait; use a longer time, or leave \
                               `wait_up_to` out";
                rules.mistake.keep(Err::<(), _>(ConfigError::new(message)));
            }
        })
    }

    /// Lets requests pass without a limit when the store cannot answer: the default, see [`FailurePolicy::Open`].
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
    /// .fail_open()
    /// .route("/login", Route::new().fail_closed())
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_open(self) -> Self {
        self.on_store_failure(FailurePolicy::Open)
    }

    /// Refuses requests with 503 when the store cannot answer; see [`FailurePolicy::Closed`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let logins = Policy::per_minute("logins", 5)?;
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     logins,
    ///     PeerIp::new(),
    /// )
    /// .fail_closed();
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_closed(self) -> Self {
        self.on_store_failure(FailurePolicy::Closed)
    }

    /// Counts requests in the process, against the instance's share of the limit, when the store cannot answer; see
    /// [`FailurePolicy::Local`].
    ///
    /// A limiter without [a local fallback](crate::Limiter::with_local_fallback) is a [mistake](Self#mistakes).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # let store = MemoryStore::new();
    /// // 8 instances of this service.
    /// let limiter =
    ///     Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
    /// let limit =
    ///     RateLimitLayer::new(limiter, Policy::per_minute("all", 800)?, GlobalKey)
    ///         .fail_local()
    ///         .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_local(self) -> Self {
        self.on_store_failure(FailurePolicy::Local)
    }

    /// Sets what happens when the store cannot answer, as [`fail_open`](Self::fail_open),
    /// [`fail_closed`](Self::fail_closed) and [`fail_local`](Self::fail_local) do: for a policy that the settings of
    /// the service choose.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{FailurePolicy, MemoryStore, PeerIp, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let setting = Some("closed".to_owned());
    /// let failure = setting.as_deref().unwrap_or("open").parse::<FailurePolicy>()?;
    /// let limit = RateLimitLayer::new(
    ///     MemoryStore::new(),
    ///     Policy::per_minute("per-client", 60)?,
    ///     PeerIp::new(),
    /// )
    /// .on_store_failure(failure)
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_store_failure(self, failure: FailurePolicy) -> Self {
        self.change_rules(|rules| rules.layer.failure = Some(failure))
    }

    /// Sets whether the layer is in shadow mode: it counts and reports, and refuses nothing.
    ///
    /// All policies of the layer act as [shadow policies](crate::Policy::with_shadow), also those that a
    /// [`PolicySource`](crate::policy::PolicySource) chooses. The layer writes no fields. A request without a key, with
    /// a key that cannot be used, or with a wrong configuration passes too, and so does each request while the store
    /// gives no verdict; observers get what the layer would have refused
    /// ([event](crate::observe::Event#names) `would_refuse`). Addresses that
    /// [`ClientIp::deny`](crate::ClientIp::deny) lists are still refused, because the list is access control and no
    /// limit. Defaults to `false`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let per_client = Policy::per_minute("per-client", 60)?;
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     per_client,
    ///     PeerIp::new(),
    /// )
    /// .with_shadow(std::env::var_os("ENFORCE_LIMITS").is_none());
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_shadow(self, shadow: bool) -> Self {
        self.change_rules(|rules| rules.shadow = Some(shadow))
    }

    /// Sets the `Retry-After` of a 503 that is sent because the store cannot answer.
    ///
    /// The wait is sent in whole seconds, rounded up, at least 1. Defaults to 1 second, because limits hold again
    /// within a second after the store is back.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .fail_closed()
    /// .with_outage_retry_after(Duration::from_secs(5));
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_outage_retry_after(self, wait: Duration) -> Self {
        self.change(|config| config.outage_retry_after = Duration::from_secs(whole_seconds(wait)))
    }

    /// Sets what happens to a request without a key, except for the keys of [`and_optional`](Self::and_optional).
    /// Defaults to [`MissingKey::Reject`], because clients could avoid the limit by omitting the key if exemption were
    /// the default.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{
    ///     HeaderKey, Limiter, MemoryStore, MissingKey, Policy, RateLimitLayer,
    /// };
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let per_tenant = Policy::per_minute("per-tenant", 600)?;
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     per_tenant,
    ///     HeaderKey::new("x-tenant")?,
    /// )
    /// .on_missing_key(MissingKey::ShareOneKey);
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_missing_key(self, missing: MissingKey) -> Self {
        self.change(|config| config.missing = missing)
    }

    /// Sets the RateLimit fields: a [`HeaderStyle`](crate::HeaderStyle), or a [`HeaderWriter`] with options, such as
    /// [jitter](HeaderWriter::with_jitter) or [names of your own](HeaderWriter::with_name). Defaults to
    /// [`HeaderStyle::Draft11`](crate::HeaderStyle::Draft11), the newest revision.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{
    ///     GlobalKey, HeaderStyle, Limiter, MemoryStore, Policy, RateLimitLayer,
    ///     headers::HeaderWriter,
    /// };
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// );
    /// let in_seconds = limit.clone().with_headers(HeaderStyle::XRateLimitDelta);
    ///
    /// let writer =
    ///     HeaderWriter::new(HeaderStyle::Draft11).with_jitter(Duration::from_secs(5));
    /// let with_jitter = limit.with_headers(writer);
    /// # let _ = (in_seconds, with_jitter);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_headers(self, fields: impl Into<HeaderWriter>) -> Self {
        let writer = fields.into();
        self.change_rules(|rules| {
            rules.mistake.keep(writer.validate());
            rules.writer = Some(writer.clone());
        })
    }

    /// Sets whether responses to allowed requests have the [`Decision`](crate::Decision) in their extensions, for outer
    /// layers, such as an access log.
    ///
    /// Defaults to `false`, because few services read the decision there, and it costs each response three allocations.
    /// The setting does not affect requests: each allowed request has the decision in its extensions, and the handler
    /// can read it there. It does not affect refusals either: the response to a denied request always has the decision.
    ///
    /// If several layers check one request, it is enough that one of them has the setting: the response has the
    /// strictest decision of all of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{
    ///     Router, extract::Request, middleware, middleware::Next, response::Response,
    ///     routing::get,
    /// };
    /// use tollgate::{
    ///     Decision, GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
    /// };
    ///
    /// async fn log(request: Request, next: Next) -> Response {
    ///     let response = next.run(request).await;
    ///     let decision = response.extensions().get::<Decision>();
    ///     println!(
    ///         "{}, units left: {:?}",
    ///         response.status(),
    ///         decision.and_then(Decision::available)
    ///     );
    ///     response
    /// }
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .with_decision_in_response(true);
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async {}))
    ///     .layer(limit)
    ///     .layer(middleware::from_fn(log));
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_decision_in_response(self, in_response: bool) -> Self {
        self.change(|config| config.decision_in_response = in_response)
    }

    /// Sets the response to refused requests: a [`Rejection`](crate::rejection::Rejection).
    ///
    /// [`ProblemJson`](crate::ProblemJson), the default, [`PlainText`](crate::rejection::PlainText),
    /// [`EmptyBody`](crate::rejection::EmptyBody) and closures are rejections.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{
    ///     GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
    ///     rejection::PlainText,
    /// };
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let limit = RateLimitLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .with_rejection(PlainText::default());
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_rejection<T>(self, rejection: T) -> RateLimitLayer<K, T, B> {
        RateLimitLayer {
            config: Arc::new(Arc::unwrap_or_clone(self.config).with_rejection(rejection)),
            body: PhantomData,
        }
    }
}
