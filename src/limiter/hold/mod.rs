//! Holds: units that are held until their cost is known.
//!
//! This file has the handle that the caller gets, and `settle` the future that ends it. `request` is what the
//! middleware gets.
//! `change` sends one change to the store, and `late` charges for settlements that come too late. `ends` has what the
//! holds of a limiter share, and keeps their ends until they are answered, in the queues of each failure `domain`;
//! `sending` sends them. `renewals` has the holds that are renewed while they are held, and `age` says until when.
//! `renewing` is what each runtime does for ends and renewals.

mod age;
mod change;
mod domain;
mod ends;
mod late;
mod renewals;
mod renewing;
mod request;
mod sending;
mod settle;

use std::{fmt, mem, sync::Arc};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use self::{age::Ending, renewals::RenewedHold, settle::merged};
use crate::{
    check::open_hold::OpenHold, decision::Decision, error::Error, failure::Resolved, hold::SettleAnswer,
    observe::HoldEnd, policy::Policy, verdict::Source,
};

pub(super) use self::ends::{OnChangedCount, SharedHolds};
pub use self::settle::SettleFuture;
pub(crate) use self::{
    age::{Charged, OnLongest},
    request::{NameReport, RequestHolds},
};

/// The answer to [`Limiter::hold`](crate::Limiter::hold): the units are held, or they did not fit. Match on it, or call
/// [`into_result`](Self::into_result), which returns the [`Hold`] to settle.
///
/// # Examples
///
/// ```
/// use tollgate::{
///     Limiter, MemoryStore, Policy, limiter::HoldAnswer, policy::HoldSettings,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let tokens =
///     Policy::per_minute("tokens", 1_000)?.with_holds(HoldSettings::new());
/// match limiter.hold("tenant:3", &tokens, 400).await? {
///     HoldAnswer::Open(hold) => drop(hold.settle(250).await?),
///     HoldAnswer::Denied(decision) => {
///         println!("try again in {:?}", decision.retry_after())
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a hold that is dropped ends as its policy says"]
pub enum HoldAnswer {
    /// The units are held until the handle is settled, released or dropped.
    Open(Hold),
    /// The units did not fit. Nothing is held and nothing was charged.
    Denied(Decision),
}

impl HoldAnswer {
    /// Whether the units are held, as long as the answer is kept: `if limiter.hold(..).await?.is_allowed()` drops it
    /// before the work begins. Match on the answer instead.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Open(_))
    }

    /// The decision on the check.
    pub fn decision(&self) -> &Decision {
        match self {
            Self::Open(hold) => hold.decision(),
            Self::Denied(decision) => decision,
        }
    }
}

/// The holds of one handle, with their units.
pub(crate) type OpenHolds = SmallVec<[(OpenHold, u64); 1]>;

/// Units that are held until their cost is known.
///
/// A handle that is dropped ends its holds as their policies say: see [`HoldSettings::with_unsettled_released`]. By
/// default, all units are charged at that instant. The drop never blocks: a store that has to wait is asked later, in
/// the background.
///
/// A handle may hold nothing: the failure policy has let the request pass without the store, or all of its holds are
/// under [shadow](Policy::with_shadow) policies and did not fit. Its changes are then answered with
/// [`SettleAnswer::NotHeld`].
///
/// [`HoldSettings::with_unsettled_released`]: crate::policy::HoldSettings::with_unsettled_released
///
/// # When the store gives no answer
///
/// A settlement that the store does not answer is an error for its caller, and is kept: it is sent again in the
/// background for one time-to-live of the hold. Later than that, the store ends the hold by itself, as its policy says.
/// A limiter keeps up to 10 000 settlements that the store may have received, and gives up the oldest first with a
/// [warning](crate::observe::Warning). Observers see the
/// [end of each hold](crate::observe::Event#names).
///
/// # Examples
///
/// ```
/// use tollgate::{
///     Limiter, MemoryStore, Policy, policy::HoldSettings, store::SettleAnswer,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let tokens =
///     Policy::per_minute("tokens", 1_000)?.with_holds(HoldSettings::new());
/// let hold = limiter.hold("tenant:3", &tokens, 400).await?.into_result()?;
/// assert_eq!(hold.decision().available(), Some(600));
/// // The work is done here.
/// assert_eq!(hold.settle(250).await?, SettleAnswer::Settled);
/// assert_eq!(limiter.peek("tenant:3", &tokens).await?.available(), Some(750));
/// # Ok(())
/// # }
/// ```
#[must_use = "a hold that is dropped ends as its policy says"]
pub struct Hold {
    /// `None` if nothing is held.
    shared: Option<Arc<SharedHolds>>,
    /// The runtime in which the hold was made. Used if the handle is dropped outside of a runtime.
    runtime: Option<Handle>,
    decision: Decision,
    open: OpenHolds,
    /// The renewals of the slots of concurrency limits.
    renewals: SmallVec<[RenewedHold; 1]>,
}

impl Hold {
    pub(in crate::limiter) fn new(shared: Arc<SharedHolds>, decision: Decision, open: OpenHolds) -> Self {
        let runtime = if open.is_empty() { None } else { Handle::try_current().ok() };
        let is_local = decision.source() == Source::Local;
        let slots = open.iter().filter(|(hold, _)| hold.policy.is_concurrent());
        let renewals = slots.filter_map(|(hold, _)| shared.renew(hold, is_local, None)).collect();
        Self { shared: Some(shared), runtime, decision, open, renewals }
    }

    /// Moves the hold to the current runtime: another one has made it, and may end.
    pub(in crate::limiter) fn move_here(mut self) -> Self {
        if let (Some(shared), Ok(here)) = (&self.shared, Handle::try_current()) {
            let due = self.renewals.iter().filter_map(|renewal| renewal.move_to(here.id())).min();
            shared.work_at(due);
            self.runtime = Some(here);
        }
        self
    }

    /// The handle of a request that a failure policy has let pass. It holds nothing.
    fn of_nothing(decision: Decision) -> Self {
        Self { shared: None, runtime: None, decision, open: OpenHolds::new(), renewals: SmallVec::new() }
    }

    /// The decision that has made the hold.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Ends the hold, and charges `actual` units at that instant. What was held beyond them is free at once. A handle
    /// of several holds ends all of them, each with `actual` units.
    ///
    /// If `actual` is above what was held, the rest is charged too, although it may not fit: later requests wait until
    /// it has left the window. So no window sees more than the limit and the units by which holds were too small.
    ///
    /// The answer is [`SettleAnswer::Expired`] if a hold had ended before: its time-to-live had passed, or the key was
    /// [reset](crate::Limiter::reset). The policy has then charged what it charges for a hold that is not settled; what
    /// `actual` is above that is charged too, once at most.
    ///
    /// # Errors
    ///
    /// The future resolves to an [`Error`] if the store gives no answer within its deadline. The settlement is then
    /// kept and sent again in the background, see [above](Self#when-the-store-gives-no-answer).
    ///
    /// # Panics
    ///
    /// The future panics if it is polled again after it has returned its result.
    ///
    /// # Cancel safety
    ///
    /// The hold ends in any case: if the future is dropped, also before its first poll, the settlement is sent in the
    /// background.
    pub fn settle(self, actual: u64) -> SettleFuture {
        self.settle_by(|_| actual)
    }

    /// Ends the hold, and charges under each policy the units that `actual` returns for it. For a handle of several
    /// holds whose policies count different units. Otherwise as [`settle`](Self::settle).
    ///
    /// # Panics
    ///
    /// Panics if `actual` does. All holds then end as those of a handle that is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Check, Limiter, MemoryStore, Policy, policy::HoldSettings};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let tokens =
    ///     Policy::per_minute("tokens", 1_000)?.with_holds(HoldSettings::new());
    /// let cents = Policy::per_day("cents", 500)?.with_holds(HoldSettings::new());
    /// let check =
    ///     Check::hold("tenant:3", &tokens, 400).and_hold("tenant:3", &cents, 20);
    /// let hold = limiter.hold_all(check).await?.into_result()?;
    /// hold.settle_by(|policy| if policy.name() == "cents" { 13 } else { 250 })
    ///     .await?;
    /// assert_eq!(limiter.peek("tenant:3", &cents).await?.available(), Some(487));
    /// # Ok(())
    /// # }
    /// ```
    pub fn settle_by(mut self, actual: impl Fn(&Policy) -> u64) -> SettleFuture {
        self.end(|hold, _| actual(&hold.policy), None)
    }

    /// Ends the hold without a charge. Otherwise as [`settle`](Self::settle).
    pub fn release(self) -> SettleFuture {
        self.settle(0)
    }

    /// Moves the end of the hold to one time-to-live from now.
    ///
    /// Jobs that take longer than the time-to-live call it meanwhile. A slot of a
    /// [concurrency limit](Policy::concurrent) is renewed in the background and needs no call.
    ///
    /// The answer is [`SettleAnswer::Expired`] if a hold had ended before.
    ///
    /// # Errors
    ///
    /// [`Error`] if the store gives no answer within its deadline. Nothing is sent again; the hold may or may not have
    /// been renewed.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. The hold may or may not have been renewed.
    pub async fn renew(&self) -> Result<SettleAnswer, Error> {
        let mut whole = SettleAnswer::NotHeld;
        if let Some(shared) = &self.shared {
            for (hold, _) in &self.open {
                let is_local = self.decision.source() == Source::Local;
                whole = merged(whole, shared.renew_hold(hold, is_local).await?);
            }
        }
        Ok(whole)
    }

    /// Ends all holds, each with the units that `actual` returns for it and what it holds.
    fn end(&mut self, actual: impl Fn(&OpenHold, u64) -> u64, cause: Option<HoldEnd>) -> SettleFuture {
        // Every answer before the first end: a panic of `actual` leaves all holds to the drop of the handle.
        let charged = self.open.iter().map(|(hold, held)| hold.charged(actual(hold, *held)));
        let charged: SmallVec<[u64; 1]> = charged.collect();
        let open = mem::take(&mut self.open);
        self.renewals.clear();
        let Some(shared) = self.shared.take().filter(|_| !open.is_empty()) else {
            return SettleFuture::answered(SettleAnswer::NotHeld);
        };
        let ended = open.into_iter().zip(charged);
        let endings = ended.map(|((hold, held), actual)| Ending { hold, held, actual, cause, is_uncertain: false });
        match self.decision.source() {
            Source::Local => {
                let settle = |ending| shared.end_local_hold(ending, self.decision.is_owed(), self.runtime.as_ref());
                SettleFuture::answered(endings.map(settle).fold(SettleAnswer::NotHeld, merged))
            }
            _ => SettleFuture::new(shared.clone(), self.runtime.take(), endings),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A settled handle has nothing left to end.
        if !self.open.is_empty() {
            drop(self.end(|hold, held| if is_released(hold) { 0 } else { held }, Some(HoldEnd::Dropped)));
        }
    }
}

/// Whether a hold that is not settled is released.
fn is_released(hold: &OpenHold) -> bool {
    hold.policy.holds().is_some_and(|holds| holds.unsettled_released())
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("decision", &self.decision).field("open", &self.open.len()).finish_non_exhaustive()
    }
}

/// A hold that a failure policy lets pass holds nothing.
impl Resolved for HoldAnswer {
    fn without_store(decision: Decision) -> Self {
        match decision.is_allowed() {
            true => Self::Open(Hold::of_nothing(decision)),
            false => Self::Denied(decision),
        }
    }
}
