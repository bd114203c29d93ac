//! Decisions: the outcome of a check.
//!
//! A handler often needs more than "allowed": how many units are left, when more become available, and whether the
//! store or a failure policy decided. A [`Decision`] contains all of these, with one [`PolicyDecision`] for each policy
//! of the check.
//!
//! # Rules
//!
//! 1. Every request that a layer has checked has a decision in its extensions. The response has it too if the request
//!    was refused, or if a layer [asks for it](crate::RateLimitLayer::with_decision_in_response).
//! 2. Waits count from [`Decision::time`], by the clock of the store that judged.
//! 3. [`available`](Decision::available) is exact: a request of that cost passes now, one unit more does not. A
//!    decision from a [lease](crate::Policy::with_lease) does not know what other processes have just spent.
//! 4. A [shadow](crate::Policy::with_shadow) policy never denies. [`would_deny`](Decision::would_deny) says whether it
//!    would; [`available`](Decision::available) and [`retry_after`](Decision::retry_after) leave it out.
//! 5. [`source`](Decision::source) says where the decision comes from. Without a verdict,
//!    [`policies`](Decision::policies) is empty.
//!
//! # The default
//!
//! In a handler of axum (feature `axum`), the decision is an argument:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # {
//! use tollgate::Decision;
//!
//! async fn search(decision: Decision) -> String {
//!     format!("{} searches left", decision.available().unwrap_or(0))
//! }
//! # let app: axum::Router = axum::Router::new().route("/search", axum::routing::get(search));
//! # }
//! ```
//!
//! # Customised
//!
//! Without axum, or to look at each policy, read the extensions of the request:
//!
//! ```
//! use http::Request;
//! use tollgate::{Decision, decision::Source};
//!
//! fn describe<B>(request: &Request<B>) -> String {
//!     let Some(decision) = request.extensions().get::<Decision>() else {
//!         return "this request is not limited".to_owned();
//!     };
//!     if decision.source() == Source::Open {
//!         return "the store is down, so the request passes without a limit"
//!             .to_owned();
//!     }
//!     let policies = decision.policies().iter().map(|standing| {
//!         format!(
//!             "{}: {} of {} left",
//!             standing.policy.name(),
//!             standing.available,
//!             standing.policy.limit()
//!         )
//!     });
//!     policies.collect::<Vec<_>>().join(", ")
//! }
//! # assert_eq!(describe(&Request::new(())), "this request is not limited");
//! ```
//!
//! # As JSON
//!
//! With feature `serde`, a [`Decision`], a [`PolicyDecision`] and a [`Source`] implement `Serialize`, for an endpoint
//! that tells callers what they have left. The fields are stable; later versions may add fields. All durations are
//! whole seconds, rounded up as in the header fields, without jitter; `retry_after_us` is exact. No field contains a
//! key or an error of the store.
//!
//! | field of a decision | value |
//! | --- | --- |
//! | `allowed` | [`Decision::is_allowed`] |
//! | `source` | the [`Source`] in snake case: `"store"`, `"deny_cache"`, `"lease"`, `"local"`, `"open"`, `"closed"`, `"overloaded"`, `"policy"`, `"queue"`, `"waiters_full"` |
//! | `available` | [`Decision::available`]; null without a verdict, and under shadow policies alone |
//! | `retry_after`, `retry_after_us` | [`Decision::retry_after`] in seconds and in microseconds; null if there is nothing to wait for |
//! | `policies` | an array with one object for each policy |
//!
//! | field of a policy | value |
//! | --- | --- |
//! | `name`, `limit`, `window`, `capacity` | of the [`Policy`](crate::Policy); the window of a [calendar](crate::Policy::calendar), of a [concurrency limit](crate::Policy::concurrent) and of a [blocked](crate::Policy::blocked) policy is null |
//! | `cost`, `violated`, `would_deny`, `available`, `next`, `reset` | the fields of [`PolicyDecision`] |
//! | `shadow` | whether the policy is a [shadow policy](crate::Policy::with_shadow) |
//! | `retry_after`, `retry_after_us`, `ban` | the fields of [`PolicyDecision`]; null if there is nothing to wait for |
//!
//! ```
//! # #[cfg(all(feature = "axum", feature = "serde"))]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{
//!     Json, Router, body::Body, extract::State, http::HeaderMap,
//!     response::IntoResponse, routing::get,
//! };
//! use http::{Request, StatusCode};
//! use http_body_util::BodyExt;
//! use serde_json::json;
//! use tollgate::{Key, Limiter, MemoryStore, Policy};
//! use tower::ServiceExt;
//!
//! /// The quota of the caller. A peek charges nothing.
//! async fn quota(
//!     State((limiter, policy)): State<(Limiter, Policy)>,
//!     headers: HeaderMap,
//! ) -> Result<impl IntoResponse, StatusCode> {
//!     let token = headers.get("x-api-key").ok_or(StatusCode::UNAUTHORIZED)?;
//!     // The key of an `ApiKey` layer.
//!     let decision = limiter.peek(Key::hashed(token), &policy).await;
//!     Ok(Json(decision.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?))
//! }
//!
//! let (limiter, policy) =
//!     (Limiter::new(MemoryStore::new()), Policy::per_minute("per-client", 60)?);
//! let _ = limiter.check(Key::hashed("s3cret"), &policy, 10).await?;
//! let app =
//!     Router::new().route("/quota", get(quota)).with_state((limiter, policy));
//!
//! let request =
//!     Request::get("/quota").header("x-api-key", "s3cret").body(Body::empty())?;
//! let body = app.oneshot(request).await?.into_body().collect().await?.to_bytes();
//! let quota: serde_json::Value = serde_json::from_slice(&body)?;
//! assert_eq!(quota["allowed"], true);
//! assert_eq!(
//!     quota["policies"],
//!     json!([{
//!         "name": "per-client", "limit": 60, "window": 60, "capacity": 60,
//!         "cost": 0, "violated": false, "shadow": false, "would_deny": false,
//!         "available": 50, "retry_after": null, "retry_after_us": null,
//!         "next": 60, "reset": 60, "ban": null,
//!     }])
//! );
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "axum", feature = "serde")))]
//! # fn main() {}
//! ```

mod entries;
mod forecast;
mod policy_decision;
mod purpose;
#[cfg(feature = "serde")]
mod serialize;

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{cmp::Reverse, fmt, slice, sync::Arc};

use self::entries::of_several;
pub use self::policy_decision::PolicyDecision;
pub use crate::verdict::Source;
use crate::{check::Check, verdict::Verdict};

/// The outcome of a check: allowed or denied, and where every policy stands.
///
/// The middleware puts the decision into the extensions of the request, for handlers. The response to a refused request
/// has the decision in its extensions too, for outer layers, beside its [`Denial`](crate::rejection::Denial). The
/// response to an allowed request has the decision only if a layer asks for it
/// ([`with_decision_in_response`](crate::RateLimitLayer::with_decision_in_response)). The response to a request that
/// was refused without a check, for example because it has no key, has only the denial. An exempt request has neither.
///
/// If several layers check one request, the extensions contain the strictest decision: a denied one before an allowed
/// one, then one with a verdict before one without, then the one with the fewest units [available](Self::available).
///
/// # Extractor
///
/// With feature `axum`, handlers take the decision as an argument; `Option<Decision>` if some requests are unlimited.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use tollgate::Decision;
///
/// async fn search(decision: Decision) -> String {
///     format!("{} searches left", decision.available().unwrap_or(0))
/// }
///
/// async fn watch(decision: Option<Decision>) -> &'static str {
///     match decision.and_then(|decision| decision.available()) {
///         Some(0..=9) => "standard quality",
///         _ => "high quality",
///     }
/// }
///
/// let app: axum::Router = axum::Router::new()
///     .route("/search", axum::routing::get(search))
///     .route("/watch", axum::routing::get(watch));
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a denial is a decision too: call `is_allowed()` or `into_result()?`"]
pub struct Decision {
    allowed: bool,
    source: Source,
    /// Whether the store is charged later for what the local fallback has admitted.
    is_owed: bool,
    time_us: u64,
    policies: PolicyDecisions,
}

/// The policies of a decision. A single policy is stored in place, so that most decisions need no allocation. Several
/// policies are shared by the copies of a decision: in the request, in the response and in handlers.
#[derive(Clone)]
enum PolicyDecisions {
    None,
    One(PolicyDecision),
    Several(Arc<[PolicyDecision]>),
}

impl Decision {
    /// Makes the decision of a verdict. Takes the charges out of `check`.
    ///
    /// Both are references, because they are large to move. Inlined, so that the decision on one charge is written
    /// once, in its final place.
    #[inline(always)]
    pub(crate) fn new(check: &mut Check, verdict: &Verdict) -> Self {
        let &Verdict { allowed, source, time_us, ref outcomes } = verdict;
        let policies = match (check.charges(), &outcomes[..]) {
            ([charge], [outcome]) => {
                let partition_key = charge.policy.partition_key(&charge.key);
                let charge = check.take_last().expect("the check has one charge");
                PolicyDecisions::One(PolicyDecision::new(charge, partition_key, outcome))
            }
            _ => PolicyDecisions::Several(of_several(check, outcomes)),
        };
        Self { allowed, source, is_owed: false, time_us, policies }
    }

    /// The decision of a failure policy, without a verdict.
    pub(crate) fn without_store(allowed: bool, source: Source) -> Self {
        Self { allowed, source, is_owed: false, time_us: 0, policies: PolicyDecisions::None }
    }

    /// The decision on one waiter of [`Limiter::acquire`](crate::Limiter::acquire).
    pub(crate) fn on_waiter(allowed: bool, source: Source, time_us: u64, standing: Option<PolicyDecision>) -> Self {
        let policies = standing.map_or(PolicyDecisions::None, PolicyDecisions::One);
        Self { allowed, source, is_owed: false, time_us, policies }
    }

    /// Marks the decision as one of the local fallback whose charges the store is to be charged later, or not.
    pub(crate) fn owed(self, is_owed: bool) -> Self {
        Self { is_owed, ..self }
    }

    /// Whether the store is charged later for what the local fallback has admitted.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Orders decisions: the greater one is stricter.
    pub(crate) fn strictness(&self) -> (bool, Option<Reverse<u64>>) {
        (!self.allowed, self.available().map(Reverse))
    }

    /// Whether the request passes. For a [peek](crate::Limiter::peek), whether a cost of 1 would pass.
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Where the decision comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Every policy of the check, in order; of the policies of [`Check::first_of`], the one that was charged, or on a
    /// denial the one with the shortest wait. Empty without a verdict.
    pub fn policies(&self) -> &[PolicyDecision] {
        match &self.policies {
            PolicyDecisions::None => &[],
            PolicyDecisions::One(policy) => slice::from_ref(policy),
            PolicyDecisions::Several(policies) => policies,
        }
    }

    /// The policies because of which the check was denied.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Check, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let (per_user, per_tenant) =
    ///     (Policy::per_minute("per-user", 5)?, Policy::per_day("per-tenant", 1_000)?);
    /// let check = Check::new("user:17", &per_user, 6).and("tenant:3", &per_tenant, 6);
    /// let decision = limiter.check_all(check).await?;
    /// let names: Vec<_> =
    ///     decision.violated().map(|standing| standing.policy.name()).collect();
    /// assert_eq!(names, ["per-user"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn violated(&self) -> impl Iterator<Item = &PolicyDecision> {
        self.policies().iter().filter(|policy| policy.violated)
    }

    /// Whether a [shadow](crate::Policy::with_shadow) policy would deny the check if it were enforced. `false` without
    /// a verdict.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Check, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let (all, exports) = (
    ///     Policy::per_minute("all", 60)?,
    ///     Policy::per_day("exports", 1)?.with_shadow(true),
    /// );
    /// let check = Check::new("user:17", &all, 1).and("user:17", &exports, 5);
    /// let decision = limiter.check_all(check).await?;
    /// assert!(decision.is_allowed() && decision.would_deny());
    /// # Ok(())
    /// # }
    /// ```
    pub fn would_deny(&self) -> bool {
        self.policies().iter().any(|policy| policy.would_deny)
    }

    /// The policies that are enforced: all except [shadow](crate::Policy::with_shadow) policies.
    pub(crate) fn enforced(&self) -> impl Iterator<Item = &PolicyDecision> + Clone {
        self.policies().iter().filter(|policy| !policy.is_shadow())
    }

    /// The largest cost that would pass now under all enforced policies; `None` without a verdict, and under
    /// [shadow](crate::Policy::with_shadow) policies alone.
    #[doc(alias = "remaining")]
    pub fn available(&self) -> Option<u64> {
        self.enforced().map(|policy| policy.available).min()
    }

    /// Time until the same request passes if nothing else is charged, exact to the microsecond under every algorithm. A
    /// wait for open [holds](crate::Limiter::hold) is not exact, because they may end at any time: it is no longer than
    /// a hold [typically](crate::policy::HoldSettings::with_typical_duration) lasts, and the same request may be denied
    /// again after it.
    ///
    /// `None` if the request was allowed, if it can never pass, or without a verdict.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let policy = Policy::per_minute("emails", 1)?;
    /// assert_eq!(limiter.check("user:17", &policy, 1).await?.retry_after(), None);
    /// let wait = limiter.check("user:17", &policy, 1).await?.retry_after();
    /// assert!(wait > Some(Duration::from_secs(59)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        // If one policy can never admit the cost, no wait helps.
        let mut waits = self.violated().map(|policy| policy.retry_after);
        let first = waits.next()??;
        waits.try_fold(first, |longest, wait| wait.map(|wait| longest.max(wait)))
    }

    /// The time of the decision by the clock of the store that judged, to the microsecond; `None` without a verdict.
    ///
    /// The time of a decision from a lease is estimated. It is never later than the store's clock, and never before the
    /// store held the units.
    pub fn time(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_micros(self.time_us()?))
    }

    /// [`time`](Self::time) in microseconds since the Unix epoch.
    pub(crate) fn time_us(&self) -> Option<u64> {
        match self.source {
            Source::DenyCache | Source::Lease | Source::Local | Source::Store => Some(self.time_us),
            // A queue that knows no decision of the store knows no time.
            Source::Queue | Source::WaitersFull => Some(self.time_us).filter(|time_us| *time_us > 0),
            Source::Closed | Source::Open | Source::Overloaded | Source::Policy => None,
        }
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allowed, source, is_owed: _, time_us, policies: _ } = self;
        f.debug_struct("Decision")
            .field("allowed", allowed)
            .field("source", source)
            .field("time_us", time_us)
            .field("policies", &self.policies())
            .finish()
    }
}
