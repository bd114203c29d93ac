//! The bill: where a handler says what its request has cost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{fmt, mem};

use crate::limiter::{Charged, NameReport, RequestHolds};
use crate::policy::Policy;

/// The cost of a request, set by its handler while it runs: an argument of handlers of axum, and in the extensions of
/// the request.
///
/// The layer reads the bill when it [settles](crate::RateLimitLayer::with_settlement) the holds of the request: at the
/// end of the response body, or earlier if the request fails. Later changes have no effect. All clones are one bill,
/// and so are the bills of nested layers.
///
/// With [`with_settlement`](crate::RateLimitLayer::with_settlement), each request that the layer forwards has a bill,
/// also if nothing is held for it. Without, the requests that hold a slot of a [concurrency
/// limit](crate::Policy::concurrent) have one.
///
/// A request that is counted in several units, such as tokens in and tokens out, has a cost
/// [for each policy](Self::set_cost_of).
///
/// # Upgrades
///
/// After a 101, or a 2xx to CONNECT, the holds last until the last clone of the bill is dropped: move it into the task
/// that serves the WebSocket.
///
/// The holds of other requests end with the request, even if a clone of the bill remains. A [guard](Self::guard) keeps
/// them while work goes on that the request has started.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::post};
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
///     middleware::{Bill, Settlement},
///     policy::HoldSettings,
/// };
///
/// async fn generate(bill: Bill) -> &'static str {
///     let (answer, tokens) = ("an answer of a model", 31);
///     bill.set_cost(tokens);
///     answer
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let tokens =
///     Policy::per_minute("tokens", 1_000)?.with_holds(HoldSettings::new());
/// let limit =
///     RateLimitLayer::new(Limiter::new(MemoryStore::new()), tokens, GlobalKey)
///         .with_cost(100)
///         .with_settlement(|_: &http::response::Parts| Settlement::AtEnd)
///         .validated()?;
/// let app: Router = Router::new().route("/generate", post(generate).layer(limit));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Bill(Arc<Shared>);

/// A bill that another owner keeps.
pub(super) struct WeakBill(Weak<Shared>);

struct Shared {
    /// The cost in units; [`UNSET`] until the handler sets one.
    cost: AtomicU64,
    rest: Mutex<Rest>,
}

/// What most bills do not need.
#[derive(Default)]
struct Rest {
    /// The costs under single policies.
    named: Vec<NamedCost>,
    /// Reports a name that no policy has.
    report: Option<NameReport>,
    /// The number of guards.
    guards: usize,
    /// Holds of a request that has ended, which end with the last guard, and what they charge without a cost.
    guarded: Vec<(RequestHolds, Charged)>,
    /// The holds of an upgraded connection, which end with the last clone of the bill.
    upgraded: Vec<RequestHolds>,
}

/// The cost under one policy.
struct NamedCost {
    policy: String,
    cost: u64,
    /// Whether the request has asked for a hold under the policy.
    is_known: bool,
}

const UNSET: u64 = u64::MAX;
/// The most that a settlement charges.
const MOST: u64 = Policy::MAX_LIMIT;

impl Bill {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { cost: AtomicU64::new(UNSET), rest: Mutex::default() }))
    }

    /// Sets the cost of the request, in units. Replaces what was set or added before, but not a cost
    /// [under one policy](Self::set_cost_of).
    pub fn set_cost(&self, cost: u64) {
        self.0.cost.store(cost.min(MOST), Ordering::Release);
    }

    /// Adds units to the cost of the request, which starts at 0 if none was set. A cost above
    /// [`Policy::MAX_LIMIT`](crate::Policy::MAX_LIMIT) is that number.
    ///
    /// # Examples
    ///
    /// A handler that streams its answer counts each piece as it is sent:
    ///
    /// ```
    /// use tollgate::middleware::Bill;
    ///
    /// fn send(piece: &str, bill: &Bill) {
    ///     bill.add(piece.split_whitespace().count() as u64);
    /// }
    /// ```
    pub fn add(&self, units: u64) {
        let add = |cost: u64| Some(if cost == UNSET { 0 } else { cost }.saturating_add(units).min(MOST));
        // The closure always returns a cost, so the update never fails.
        let _ = self.0.cost.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// The cost of the request so far; `None` if none was set, so that the units that are held will be charged.
    pub fn cost(&self) -> Option<u64> {
        self.0.cost()
    }

    /// Sets the cost of the request under the policy with the name `policy`, in units of that policy. It replaces the
    /// plain cost there, and what was set or added for the policy before. The case of the name does not matter.
    ///
    /// A name under which nothing is held for the request changes nothing: under each policy without a cost of its own,
    /// the plain cost is charged, or what is held if there is none. The first such name of a request that holds
    /// anything is [reported](crate::observe::Warning), with the names that there are; `{:?}` of a bill shows its
    /// costs.
    ///
    /// # Examples
    ///
    /// Tokens in and tokens out, whose numbers are known when the model has answered:
    ///
    /// ```
    /// use tollgate::middleware::Bill;
    ///
    /// fn on_usage(bill: &Bill, prompt_tokens: u64, completion_tokens: u64) {
    ///     bill.set_cost_of("input-tokens", prompt_tokens);
    ///     bill.set_cost_of("output-tokens", completion_tokens);
    /// }
    /// ```
    pub fn set_cost_of(&self, policy: &str, cost: u64) {
        self.0.change_cost_of(policy, |_| cost);
    }

    /// Adds units to the cost of the request under the policy with the name `policy`. That cost starts at 0 if none was
    /// [set](Self::set_cost_of), whatever the plain cost is. A cost above
    /// [`Policy::MAX_LIMIT`](crate::Policy::MAX_LIMIT) is that number.
    pub fn add_to(&self, policy: &str, units: u64) {
        self.0.change_cost_of(policy, |cost| cost.saturating_add(units));
    }

    /// What will be charged under the policy with the name `policy`: its own cost, or else the plain cost of the
    /// request. `None` if neither was set, so that the units that are held will be charged.
    pub fn cost_of(&self, policy: &str) -> Option<u64> {
        self.0.cost_of(policy)
    }

    pub(super) fn downgrade(&self) -> WeakBill {
        WeakBill(Arc::downgrade(&self.0))
    }

    pub(super) fn add_guard(&self) {
        self.0.rest().guards += 1;
    }

    /// Ends the holds that the guards have kept after their request, if this was the last guard.
    pub(super) fn remove_guard(&self) {
        let guarded = {
            let mut rest = self.0.rest();
            rest.guards -= 1;
            if rest.guards > 0 { Vec::new() } else { mem::take(&mut rest.guarded) }
        };
        for (holds, unset) in guarded {
            self.end(holds, unset);
        }
    }

    /// Ends the holds of a request that has ended: now, or with its last guard. Without a cost, `unset` is charged.
    pub(super) fn end_after_guards(&self, holds: RequestHolds, unset: Charged) {
        {
            let mut rest = self.0.rest();
            if rest.guards > 0 {
                return rest.guarded.push((holds, unset));
            }
        }
        self.end(holds, unset);
    }

    /// Ends these holds now. Without a cost, `unset` is charged.
    pub(super) fn end(&self, holds: RequestHolds, unset: Charged) {
        self.0.end(holds, unset);
    }

    /// Ends these holds when the last clone of the bill is dropped.
    pub(super) fn keep(&self, holds: RequestHolds) {
        self.0.rest().upgraded.push(holds);
    }
}

impl WeakBill {
    /// The bill. `None` once its last clone is dropped, which ends the holds that the bill keeps.
    pub(super) fn upgrade(&self) -> Option<Bill> {
        self.0.upgrade().map(Bill)
    }
}

impl Shared {
    /// No code of a user runs under the lock, and each change is whole.
    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_cost_of(&self, policy: &str, change: impl FnOnce(u64) -> u64) {
        let mut rest = self.rest();
        match rest.named.iter_mut().find(|named| named.is_of(policy)) {
            Some(named) => named.cost = change(named.cost).min(MOST),
            None => {
                rest.named.push(NamedCost { policy: policy.to_owned(), cost: change(0).min(MOST), is_known: false })
            }
        }
    }

    fn cost_of(&self, policy: &str) -> Option<u64> {
        let rest = self.rest();
        let named = rest.named.iter().find(|named| named.is_of(policy));
        named.map(|named| named.cost).or_else(|| self.cost())
    }

    /// Notes which names are those of policies. Another layer may have the others.
    fn note_names(&self, holds: &RequestHolds) {
        let mut rest = self.rest();
        let Rest { named, report, .. } = &mut *rest;
        for named in named.iter_mut() {
            named.is_known |= holds.asked().iter().any(|policy| named.is_of(policy.name()));
        }
        if !named.is_empty() {
            if report.is_none() {
                *report = holds.name_report();
            }
            if let Some(report) = report {
                report.add(holds.asked());
            }
        }
    }

    fn end(&self, mut holds: RequestHolds, unset: Charged) {
        self.note_names(&holds);
        holds.end(|policy| self.cost_of(policy.name()).map_or(unset, Charged::Units));
    }

    fn cost(&self) -> Option<u64> {
        match self.cost.load(Ordering::Acquire) {
            UNSET => None,
            cost => Some(cost),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let upgraded = mem::take(&mut self.rest().upgraded);
        for holds in upgraded {
            self.end(holds, Charged::Held);
        }
        let (report, unknown) = {
            let mut rest = self.rest();
            (rest.report.take(), rest.named.iter().find(|named| !named.is_known).map(|named| named.policy.clone()))
        };
        if let (Some(report), Some(unknown)) = (report, unknown) {
            report.report(&unknown);
        }
    }
}

impl NamedCost {
    fn is_of(&self, policy: &str) -> bool {
        self.policy.eq_ignore_ascii_case(policy)
    }
}

impl fmt::Debug for WeakBill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakBill")
    }
}

impl fmt::Debug for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<_> = self.0.rest().named.iter().map(|named| (named.policy.clone(), named.cost)).collect();
        f.debug_struct("Bill").field("cost", &self.cost()).field("cost_of", &named).finish_non_exhaustive()
    }
}
