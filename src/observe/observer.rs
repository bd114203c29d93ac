//! The [`Observer`] trait, the events that it receives, as one enum, and how holds end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, sync::Arc, time::Duration};

use crate::observe::event_kind::{BreakerChange, EventKind};
use crate::observe::{BreakerState, EndedHold, ObservedKey, RefusalEvent, Warning};
use crate::{decision::Decision, error::Error, observe::other::Other, policy::Policy};

/// Receives the events of a limiter.
///
/// # Examples
///
/// See [the module's page](crate::observe#customised).
pub trait Observer: Send + Sync + 'static {
    /// An event occurred.
    ///
    /// Called in the path of a request, by several threads at once, so it must not block: count, sample, or pass the
    /// event to another task. A panic ends the call of this observer alone: the request goes on, other observers get
    /// the event, and the first panic is reported as a line for operators. With `panic = "abort"` in the profile of the
    /// program, a panic ends the process.
    fn on_event(&self, event: &Event<'_>);

    /// Whether this observer writes `tracing` events about what a limiter [reports by
    /// itself](crate::observe#what-a-limiter-reports-by-itself). The limiter then omits its own events; its lines still
    /// go to stderr if no subscriber takes the events.
    ///
    /// Defaults to `false`, because an observer that only counts must not silence the report that limits are not
    /// enforced.
    fn traces(&self) -> bool {
        false
    }

    /// The store has answered the limiter itself, for example with a block of a lease, and no decision says so.
    ///
    /// Defaults to doing nothing. Hidden, because only `Tracing` looks for the end of an outage.
    #[doc(hidden)]
    fn on_answer(&self) {}
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn on_event(&self, event: &Event<'_>) {
        (**self).on_event(event);
    }

    fn traces(&self) -> bool {
        (**self).traces()
    }

    fn on_answer(&self) {
        (**self).on_answer();
    }
}

/// Creates an observer that calls `f` for each event, under the rules of [`Observer::on_event`].
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, observe};
///
/// let print_warnings = observe::from_fn(|event| {
///     if event.name() == "warning" {
///         eprintln!("{event}");
///     }
/// });
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(print_warnings);
/// ```
pub fn from_fn<F>(f: F) -> impl Observer
where
    F: Fn(&Event<'_>) + Send + Sync + 'static,
{
    struct FromFn<F>(F);

    impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for FromFn<F> {
        fn on_event(&self, event: &Event<'_>) {
            (self.0)(event);
        }
    }

    FromFn(f)
}

/// An event of a limiter, of plans or of live limits, for [`Observer::on_event`].
///
/// Its `Display` is one line for operators, which contains no key. The words of the table stay in later versions; the
/// text of the lines may change. An event of a feature that is off does not occur.
///
/// # Names
///
/// | name | what happened | outcome |
/// | --- | --- | --- |
/// | `abandonment` | A check was dropped before its verdict, for example because the client hung up or an outer timeout passed. No decision follows, and the check may have been charged. A check that was never polled was not sent, and a peek charges nothing; neither is reported. | `dropped` |
/// | `batch` | A call of a store over a network ended. It may contain several checks. | `answered` if the store sent a usable reply, else `unanswered` |
/// | `breaker_change` | The circuit breaker changed its state. A store with several [failure domains](crate::store::Store::failure_domains), such as a cluster, has a breaker for each; the states then sum up all breakers: open if one is open, else probing if one is probing, else closed. Its [number](Self::number) is `sequence`. | the new state: `closed` (checks go to the store), `open` (no checks go to the store: the failure policy decides at once) or `probing` (one check tests whether the store is back) |
/// | `count_change` | A [`Limiter::ban`](crate::Limiter::ban), [`unban`](crate::Limiter::unban), [`record`](crate::Limiter::record) or [`credit`](crate::Limiter::credit) ended. A call that is refused as invalid, or dropped before its end, is not reported. | `ok`, or `error` if the store failed |
/// | `decision` | The store, a remembered denial or the failure policy [decided](Self::decision) a check. Callers of a [`Limiter`](crate::Limiter) apply the failure policy themselves, so their checks without a verdict are only failures. A check of cost 0, such as a [peek](crate::Limiter::peek), is not reported. | `allowed`, `denied`, `blocked` if a policy is [blocked](crate::Policy::blocked), `overloaded`, or the failure policy's `open`, `closed` or `local` |
/// | `eviction` | A full [`MemoryStore`](crate::MemoryStore) dropped a live count for a new key, so the client of that count starts with a fresh budget. Reported for each count. A flood of new keys drops many counts, so an observer should return fast. | `evicted` |
/// | `exemption` | The middleware let a request pass without a check. A request that another policy of the layer limits is reported as a decision instead. | `key` if the [`KeyExtractor`](crate::KeyExtractor) returned `None`; `missing_key` if [`MissingKey::Exempt`](crate::MissingKey::Exempt) let it pass; `route` if its route is [exempt](crate::Route::exempt); `shadow` if [shadow mode](crate::RateLimitLayer::with_shadow) did not refuse it: `would_refuse` has the reason; `unlimited` if its plan is [unlimited](crate::policy::Policies::unlimited) |
/// | `hold_end` | A [hold](crate::Limiter::hold) of this process has ended. Holds that a crash leaves to the store are not reported. Reported once for each hold of a handle, also by a task in the background, and while a handle is dropped. Its [numbers](Self::number) are `held` and `actual`. | see [below](#ends-of-holds) |
/// | `lease_change` | A key that this process checks often got a [lease](Policy::with_lease), or its lease ended. | `started` or `ended` |
/// | `limits_change` | The limits of a `LiveLimits` were replaced, or the old ones stay (feature `serde`). Reported on the thread that has replaced the limits, after the limits are in force. A file that cannot be read is reported once, until it can be read again. | `accepted`; `refused`; `unreadable` if the watched file cannot be read |
/// | `near_limit` | A request has taken what a key has spent to the policy's [near limit](crate::Policy::with_near_limit). Reported once for each key and window, also for shadow policies. Each process sees the requests that it has sent; a process that tracks more than 16 384 keys at a time may repeat the event for some of them. Its [number](Self::number) is `spent`. | `near` |
/// | `plan_fallback` | A request had no current plan, so the last plan of its key or the default plan applied (feature `plans`). | `busy` if as many look-ups as allowed were on their way; `failed` if the last look-up of the key failed; `no_runtime` if the request did not run in a tokio runtime; `unanswered` while the look-up is on its way |
/// | `plan_lookup` | A look-up of a plan ended (feature `plans`). Reported in the task of the look-up. | `found` or `no_plan` if the source has answered; else `failed` (its error), `invalid` (a plan that cannot be used), `panicked`, `timed_out`, or `cancelled` (its runtime has ended) |
/// | `refusal` | The middleware refused a request without a check: the request has no usable key, its cost can never pass, or the layer is misconfigured. No decision follows. | `cost_above_limit`, `misconfigured`, `missing_key` or `unusable_key` |
/// | `reset` | A [`Limiter::reset`](crate::Limiter::reset) ended. A reset that is dropped before its end is not reported. | `ok`, or `error` if the store failed |
/// | `store_failure` | A check got no verdict, because of an [error](Self::error). In the middleware, the failure policy's decision follows. | `bad_key`, `config` (an invalid call), `deadline`, `misconfigured`, `overloaded` or `unavailable`: the [kind](crate::ErrorKind) of the error |
/// | `warning` | The setup of a store or a layer looks wrong. Reported once for each store or layer and each kind of warning. | a cause of the table at [`Warning`] |
/// | `would_refuse` | The middleware would have refused a request without a check if it were not for [shadow mode](crate::RateLimitLayer::with_shadow). The request passes. | as for `refusal` |
///
/// # Ends of holds
///
/// | outcome | the hold |
/// | --- | --- |
/// | `dropped` | its handle was dropped without a settlement, and the units were charged or given back as the policy says |
/// | `expired` | the store had ended it before: its time-to-live had passed, or it was reset |
/// | `released` | was settled with 0 units |
/// | `settled` | was settled |
/// | `too_long` | had reached its [longest age](crate::policy::HoldSettings::with_longest), and was settled while its request went on |
/// | `unanswered` | got no answer of a store within its time-to-live, or too many changes waited for one; the store ends it by itself, unless a change has reached it |
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, MemoryStore, observe};
///
/// let print = observe::from_fn(|event| match event.name() {
///     "breaker_change" => println!("the breaker is {}", event.outcome()),
///     "warning" | "limits_change" => println!("{event}"),
///     _ => {}
/// });
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(print);
/// ```
///
/// Prints which routes refuse requests, and which policies deny which keys:
///
/// ```
/// use tollgate::observe;
///
/// let print_denials = observe::from_fn(|event| {
///     let Some(decision) =
///         event.decision().filter(|decided| !decided.is_allowed())
///     else {
///         return;
///     };
///     if let Some(method) = event.method() {
///         let route = event.route().unwrap_or("unmatched");
///         println!("{method} {route}: {}", event.outcome());
///     }
///     // The policies of a decision are in the order of its charges.
///     for ((key, policy, _), counted) in event.charges().zip(decision.policies())
///     {
///         if counted.violated {
///             println!("{} denies {key}", policy.name());
///         }
///     }
/// });
/// # let _ = print_denials;
/// ```
///
/// Counts holds that were dropped without a settlement, because the code has forgotten to settle them, and failures
/// that an operator has to correct:
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{ErrorKind, observe::{Event, Observer}};
///
/// #[derive(Default)]
/// struct Alerts {
///     forgotten: AtomicU64,
///     setup: AtomicU64,
/// }
///
/// impl Observer for Alerts {
///     fn on_event(&self, event: &Event<'_>) {
///         if (event.name(), event.outcome()) == ("hold_end", "dropped") {
///             self.forgotten.fetch_add(1, Ordering::Relaxed);
///         }
///         let kind = event.error().map(|error| error.kind());
///         if kind == Some(ErrorKind::StoreMisconfigured) {
///             self.setup.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
///
/// The keys that have come near a limit:
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tollgate::{
///     Limiter, MemoryStore, Policy,
///     observe::{Event, Observer},
/// };
///
/// #[derive(Default)]
/// struct Near(Mutex<Vec<String>>);
///
/// impl Observer for Near {
///     fn on_event(&self, event: &Event<'_>) {
///         if let Some(spent) = event.number("spent") {
///             for (_, policy, _) in event.charges() {
///                 let (name, limit) = (policy.name(), policy.capacity());
///                 let mut near = self.0.lock().unwrap();
///                 near.push(format!("{name}: {spent} of {limit}"));
///             }
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let near = Arc::new(Near::default());
/// let limiter = Limiter::new(MemoryStore::new()).with_observer(Arc::clone(&near));
/// let daily = Policy::per_day("daily", 10)?;
/// for _ in 0..10 {
///     let _ = limiter.check("alice", &daily, 1).await?;
/// }
/// assert_eq!(*near.0.lock().unwrap(), ["daily: 8 of 10"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Event<'a>(pub(crate) EventKind<'a>);

impl<'a> Event<'a> {
    /// The name of the event, in snake case: one of the [table](Self#names). New versions may add names.
    pub fn name(&self) -> &'static str {
        self.0.parts().0
    }

    /// What came of it, or why it happened, in one word of the [table](Self#names).
    ///
    /// Metrics have the same words, with one exception. The outcome of a `decision` is that of the request: `allowed`,
    /// even if a shadow policy would have denied it. The metric counts each policy, and that one as `would_deny`, see
    /// [`Decision::would_deny`].
    pub fn outcome(&self) -> &'static str {
        self.0.parts().1
    }

    /// How long it took, including all waiting, if it took time: a decision, a failure, an abandonment, a batch, a
    /// count change, a look-up of a plan or a reset.
    pub fn elapsed(&self) -> Option<Duration> {
        self.0.parts().2
    }

    /// The decision of a `decision`.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.0.decision()
    }

    /// The error of a `store_failure`. Its `Display` is for operators and contains no key.
    pub fn error(&self) -> Option<&'a Error> {
        self.0.error()
    }

    /// The warning of a `warning`.
    pub fn warning(&self) -> Option<&Warning> {
        self.0.warning()
    }

    /// The keys and policies that the event is about, each with a number of units: the charges of a check, in order,
    /// with their costs; what was held, for a `hold_end`; what is spent, for a `near_limit`; the largest block, for a
    /// `lease_change`. Empty for other events. Of [alternatives](crate::Check::first_of) there is one: the policy that
    /// the decision names, or without a verdict the first.
    ///
    /// Also present without a verdict. The [policies of a decision](Decision::policies) are in the same order.
    pub fn charges(&self) -> impl Iterator<Item = (ObservedKey<'a>, &'a Policy, u64)> + use<'a> {
        self.0.charges()
    }

    /// The HTTP method of the request that was decided or refused; `other` for a method that RFC 9110 and RFC 5789 do
    /// not define. `None` if no layer has sent the check.
    ///
    /// The method and the route have few values, so they can be labels of metrics: a client cannot make them up.
    pub fn method(&self) -> Option<&'static str> {
        self.0.request().map(|request| request.method)
    }

    /// The route of the request that was decided or refused: the template that axum's router has matched
    /// (`/users/{id}`); without one, the path of the [entry](crate::RateLimitLayer::route) of the layer that covers the
    /// request (`/mcp/{*rest}`). `None` if there is neither, and if no layer has sent the check. Never the path that
    /// the client has sent.
    pub fn route(&self) -> Option<&'a str> {
        self.0.request().and_then(|request| request.route)
    }

    /// A number of the event, by its name; `None` if the event has no such number.
    ///
    /// | name | event | the number |
    /// | --- | --- | --- |
    /// | `actual` | `hold_end` | Units that the end was to charge: those of the settlement, or those that the policy charges for a hold that is not settled. If the hold had `expired`, only what is above the charge at its end is charged. If it is `unanswered`, nothing is. |
    /// | `held` | `hold_end` | Units that were held. |
    /// | `sequence` | `breaker_change` | The number of the change: the change with the higher number came later. Observers are called without a lock, so threads may report changes in another order than that in which they happened. To keep the current state, ignore a change whose number is below the highest one seen. All breakers of the process share one sequence, so a gap does not mean a lost change. |
    /// | `spent` | `near_limit` | Units that the key has spent, with the request that came near the limit. Under a policy with [shards](Policy::with_shards), those of one shard. |
    pub fn number(&self, name: &str) -> Option<u64> {
        self.0.number(name)
    }
}

impl<'a> Event<'a> {
    /// A change of the breaker, with the next sequence number.
    pub(crate) fn breaker_change(from: BreakerState, to: BreakerState) -> Self {
        static LATEST: AtomicU64 = AtomicU64::new(0);
        let sequence = LATEST.fetch_add(1, Ordering::Relaxed) + 1;
        Self(EventKind::BreakerChange(BreakerChange { from, to, sequence }))
    }

    pub(crate) fn of_refusal(refusal: RefusalEvent<'a>) -> Self {
        Self(EventKind::Refusal(refusal))
    }

    pub(crate) fn of_shadow_refusal(refusal: RefusalEvent<'a>) -> Self {
        Self(EventKind::WouldRefuse(refusal))
    }

    pub(crate) fn of_hold(ended: EndedHold<'a>) -> Self {
        Self(EventKind::HoldEnd(ended))
    }

    pub(crate) fn of_warning(warning: Warning) -> Self {
        Self(EventKind::Warning(warning))
    }

    pub(crate) fn other(other: Other<'a>) -> Self {
        Self(EventKind::Other(other))
    }
}

/// One line for operators, without a key.
impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.parts().3.fmt(f)
    }
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a hold has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HoldEnd {
    /// The handle was dropped without a settlement, and the units were charged or given back as the policy says.
    Dropped,
    /// The store had ended the hold before: its time-to-live had passed, or it was reset.
    Expired,
    /// It was released: settled with 0 units.
    Released,
    /// It was settled.
    Settled,
    /// It had reached its [longest age](crate::policy::HoldSettings::with_longest), and was settled while its request
    /// went on.
    TooLong,
    /// No store has answered within the time-to-live, or too many changes waited for an answer. The store ends the hold
    /// by itself, unless a change has reached it.
    Unanswered,
}

impl HoldEnd {
    /// The end in one word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Expired => "expired",
            Self::Released => "released",
            Self::Settled => "settled",
            Self::TooLong => "too_long",
            Self::Unanswered => "unanswered",
        }
    }
}
