//! The layer: its type, its constructor, and how its calls wait.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, StatusCode};

use super::{response::HttpBody, settings::Settings};
use crate::{error::ConfigError, failure::FailurePolicy, key::Key, limiter::Limiter, policy::Policy};

/// Layer for outbound clients: a call waits until it fits a policy, and until the pauses of the upstream are over.
///
/// Clones of a layer, and all layers of one [`Limiter`] with the same policy and key, spend from one budget, wait in
/// one queue and obey one pause. [The module's page](crate::throttle) has the rules, and examples with reqwest,
/// hyper-util and tonic.
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, time::Duration};
///
/// use http::{Request, Response};
/// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let quota = Policy::per_second("upstream", 50)?;
/// let throttle =
///     ThrottleLayer::new(Limiter::new(MemoryStore::new()), quota, "account-1")
///         .with_max_wait(Duration::from_secs(2));
/// // In place of a client.
/// let client = service_fn(|_: Request<()>| async {
///     Ok::<_, Infallible>(Response::new("hello"))
/// });
///
/// let client = ServiceBuilder::new().layer(throttle).service(client);
/// assert_eq!(client.oneshot(Request::new(())).await?.body(), &"hello");
/// # Ok(())
/// # }
/// ```
///
/// # Mistakes
///
/// No setter returns a `Result`. A layer keeps the first mistake in its settings, and [`validated`](Self::validated)
/// returns it, so let `.validated()?` be the last line of each layer. A layer with a mistake that is not validated
/// makes no call: each call ends in [`Throttled`](super::Throttled), whose source is the mistake, whatever the failure
/// policy is.
///
/// # Naming the type
///
/// A layer with one key and a fixed cost is a `ThrottleLayer`. The parameters are the key, the cost, and where a
/// response has its head: `()` for an [`http::Response`] and for a response of reqwest. The type of a closure has no name; use a function:
///
/// ```
/// use http::Request;
/// use tollgate::{ConfigError, Key, Limiter, MemoryStore, Policy, ThrottleLayer};
///
/// fn host(request: &Request<String>) -> Key {
///     Key::from(request.uri().host().unwrap_or_default())
/// }
///
/// fn per_host(
///     limiter: Limiter,
/// ) -> Result<ThrottleLayer<fn(&Request<String>) -> Key>, ConfigError> {
///     let throttle =
///         ThrottleLayer::new(limiter, Policy::per_second("per-host", 10)?, "any");
///     Ok(throttle.with_key(host as fn(&Request<String>) -> Key))
/// }
/// ```
#[must_use]
pub struct ThrottleLayer<K = Key, C = u64, H = ()> {
    pub(super) key: Arc<K>,
    pub(super) cost: Arc<C>,
    pub(super) head: Arc<H>,
    pub(super) settings: Arc<Settings>,
}

impl ThrottleLayer {
    /// Creates a layer that charges each call one unit under `policy`, to one `key`: the name of the upstream, or of
    /// the account there. `limiter` is a [`Limiter`] or a store.
    ///
    /// A call waits for at most 10 seconds ([`with_max_wait`](Self::with_max_wait)). The failure policy is
    /// [closed](Self::fail_closed). A [concurrency limit](Policy::concurrent) also needs
    /// [`hold_until_end`](Self::hold_until_end); without it, no call is made.
    pub fn new(limiter: impl Into<Limiter>, policy: Policy, key: impl Into<Key>) -> Self {
        let settings = Arc::new(Settings::new(limiter.into(), policy));
        Self { key: Arc::new(key.into()), cost: Arc::new(1), head: Arc::new(()), settings }
    }
}

impl<K, C, H> ThrottleLayer<K, C, H> {
    /// Returns the layer, or the first mistake in its settings. The last line of each layer.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: the first setting that is wrong by itself, [`fail_local`](Self::fail_local) without a fallback,
    /// or a [concurrency limit](Policy::concurrent) without [`hold_until_end`](Self::hold_until_end).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let quota = Policy::per_day("quota", 9_500)?;
    /// let throttle =
    ///     ThrottleLayer::new(Limiter::new(MemoryStore::new()), quota, "key1")
    ///         .with_cost(10_000);
    /// assert_eq!(throttle.validated().unwrap_err().policy_name(), Some("quota"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn validated(self) -> Result<Self, ConfigError> {
        self.settings.validate()?;
        Ok(self)
    }

    /// Sets where a response has its status and its fields, if it is neither an [`http::Response`] nor, with feature
    /// `reqwest`, a response of reqwest.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// struct Reply {
    ///     status: http::StatusCode,
    ///     headers: http::HeaderMap,
    /// }
    ///
    /// let throttle = ThrottleLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_day("quota", 9_500)?,
    ///     "key1",
    /// )
    /// .with_response_head(|reply: &Reply| (reply.status, &reply.headers));
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_response_head<Res, F>(self, head: F) -> ThrottleLayer<K, C, F>
    where
        F: Fn(&Res) -> (StatusCode, &HeaderMap),
    {
        let Self { key, cost, head: _, settings } = self.change(|settings| settings.holds_until_end = false);
        ThrottleLayer { key, cost, head: Arc::new(head), settings }
    }

    /// Holds what a call costs until the body of its response has ended, failed or been dropped, under a policy that
    /// has [holds](Policy::with_holds). A [concurrency limit](Policy::concurrent) needs it: at most so many calls are
    /// under way at once, in all processes together.
    ///
    /// Calls wait for a slot in the queue of [`Limiter::acquire_hold`]. The response is an [`http::Response`], whose
    /// body becomes a [`ThrottledBody`](super::ThrottledBody). When it has ended, a slot is free, and under another
    /// policy with holds the cost is charged. If a call has no response, because the client fails or the future is
    /// dropped, the units are charged, unless the policy has
    /// [`HoldSettings::with_unsettled_released`](crate::policy::HoldSettings::with_unsettled_released). A response that
    /// upgrades its connection ends at once.
    ///
    /// Replaces what [`with_response_head`](Self::with_response_head) has set. Convert other responses inside of the
    /// throttle: a response of reqwest becomes an `http::Response<reqwest::Body>` with `.map_response(Into::into)`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let calls = Policy::concurrent("calls", 5)?;
    /// let throttle =
    ///     ThrottleLayer::new(Limiter::new(MemoryStore::new()), calls, "account-1")
    ///         .hold_until_end();
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_until_end(self) -> ThrottleLayer<K, C, HttpBody> {
        let Self { key, cost, head: _, settings } = self.change(|settings| settings.holds_until_end = true);
        ThrottleLayer { key, cost, head: Arc::new(HttpBody), settings }
    }

    /// Sets the longest time that a call waits before it is made: for its turn, for the store, for pauses and for a
    /// place of the client together.
    ///
    /// As soon as it is certain that a call would wait for longer, it ends in [`Throttled`](super::Throttled). Defaults
    /// to 10 s, so that a call is over before the usual timeout of its caller, 30 s. With a zero wait, a call is made
    /// at once or not at all.
    ///
    /// # Examples
    ///
    /// A job that may wait for an hour, and a request handler that may not:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let throttle = ThrottleLayer::new(
    ///     Limiter::new(MemoryStore::new()),
    ///     Policy::per_day("quota", 9_500)?,
    ///     "key1",
    /// );
    /// let of_jobs = throttle.clone().with_max_wait(Duration::from_secs(3_600));
    /// let of_handlers = throttle.with_max_wait(Duration::from_millis(200));
    /// # let _ = (of_jobs, of_handlers);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_max_wait(self, max_wait: Duration) -> Self {
        self.change(|settings| settings.max_wait = max_wait)
    }

    /// Makes calls while the store cannot answer, without a charge. They still obey pauses. A call waits for the store
    /// as long as it may wait for its turn.
    ///
    /// Not the default, because units that the upstream has taken cannot be given back.
    pub fn fail_open(self) -> Self {
        self.on_store_failure(FailurePolicy::Open)
    }

    /// Makes no calls while the store cannot answer: they end in [`Throttled`](super::Throttled). The default.
    ///
    /// An outage of the store is shorter than the window of most quotas, so a quota that is overspent meanwhile costs
    /// more than the calls that were not made: the upstream refuses all calls for the rest of the window, bills them,
    /// or blocks the account.
    pub fn fail_closed(self) -> Self {
        self.on_store_failure(FailurePolicy::Closed)
    }

    /// Judges by this instance's share of the limit while the store cannot answer, see
    /// [`Limiter::with_local_fallback`](crate::Limiter::with_local_fallback).
    ///
    /// A limiter without a local fallback is a [mistake](Self#mistakes).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # let store = MemoryStore::new();
    /// // 8 instances of this client.
    /// let limiter =
    ///     Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
    /// let quota = Policy::per_second("upstream", 80)?;
    /// let throttle =
    ///     ThrottleLayer::new(limiter, quota, "account-1").fail_local().validated()?;
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_local(self) -> Self {
        self.on_store_failure(FailurePolicy::Local)
    }

    /// Sets what happens to calls while the store cannot answer: for a policy that the settings of the service choose.
    pub fn on_store_failure(self, failure: FailurePolicy) -> Self {
        self.change(|settings| settings.failure = failure)
    }

    /// Shares pauses through the store: if the upstream asks one process for a pause, all processes whose layers share
    /// pauses keep their calls for that key back.
    ///
    /// Defaults to pauses of the process alone, because a pause that is shared costs a call to the store. A process
    /// that cannot reach the store obeys its own pauses, and so does a process whose policies are all
    /// [shadow policies](crate::Policy::with_shadow).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # let store = MemoryStore::new();
    /// let quota = Policy::per_second("upstream", 80)?;
    /// let throttle = ThrottleLayer::new(Limiter::new(store), quota, "account-1")
    ///     .with_shared_pauses();
    /// # let _ = throttle;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_shared_pauses(self) -> Self {
        self.change(Settings::share_pauses)
    }

    pub(super) fn change(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<K, C, H> Clone for ThrottleLayer<K, C, H> {
    fn clone(&self) -> Self {
        let Self { key, cost, head, settings } = self;
        let (key, cost, head) = (Arc::clone(key), Arc::clone(cost), Arc::clone(head));
        Self { key, cost, head, settings: Arc::clone(settings) }
    }
}

impl<K, C, H> fmt::Debug for ThrottleLayer<K, C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer").field("settings", &self.settings).finish_non_exhaustive()
    }
}
