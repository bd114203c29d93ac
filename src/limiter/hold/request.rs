//! The holds of a request. The middleware decides later how each of them ends.

use std::{mem, sync::Arc};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::{
    check::Check,
    decision::Decision,
    hold::OpenHold,
    limiter::{
        core::Core,
        handle::Limiter,
        hold::{
            change::Ending,
            handle::{OpenHolds, is_released},
            renewals::RenewedHold,
        },
    },
    policy::Policy,
    verdict::Source,
};

/// The holds of a check: asked for, and then held if the check was allowed.
#[derive(Debug)]
pub(crate) struct RequestHolds {
    core: Arc<Core>,
    units: Units,
    /// The runtime of the request. Used if the body is dropped outside of a runtime.
    runtime: Option<Handle>,
    /// Whether the check was allowed. If not, the store may have made the holds all the same, and observers do not know
    /// of them.
    is_made: bool,
    /// If the local fallback has made the holds, whether the store is to be charged for them.
    local: Option<bool>,
}

type Units = SmallVec<[HeldUnits; 1]>;

/// One hold of a request.
#[derive(Debug)]
struct HeldUnits {
    /// The number of the charge in its check.
    number: usize,
    hold: OpenHold,
    /// The units that are held.
    held: u32,
    /// The renewal of the hold, while its request lives.
    renewal: Option<RenewedHold>,
}

/// What is charged when holds end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Charged {
    /// What the policy says about holds that are not settled.
    AsUnsettled,
    /// The units that are held.
    Held,
    /// This number of units.
    Units(u32),
}

impl Limiter {
    /// The holds that `check` asks for; `None` without any.
    #[inline]
    pub(crate) fn holds_of(&self, check: &Check) -> Option<RequestHolds> {
        if check.charges().iter().all(|charge| charge.hold.is_none()) {
            return None;
        }
        Some(RequestHolds::of(Arc::clone(&self.core), check))
    }

    /// Whether the store has holds.
    pub(crate) fn has_holds(&self) -> bool {
        self.core.store.has_holds()
    }
}

impl RequestHolds {
    /// The holds that `check` asks for.
    pub(super) fn of(core: Arc<Core>, check: &Check) -> Self {
        let units = check.holds().map(|(number, hold, held)| HeldUnits { number, hold, held, renewal: None });
        let (units, runtime) = (units.collect(), Handle::try_current().ok());
        Self { core, units, runtime, is_made: false, local: None }
    }

    /// The core, and the holds that an allowed check has made.
    pub(super) fn into_open(mut self, decision: &Decision) -> (Arc<Core>, OpenHolds) {
        self.retain_held(decision);
        (self.core, self.units.into_iter().map(|units| (units.hold, units.held)).collect())
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The policies of the holds.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.units.iter().map(|units| &units.hold.policy)
    }

    /// A shadow charge that did not fit is not held, and neither is anything without a verdict: what the store may have
    /// made all the same is being released.
    fn retain_held(&mut self, decision: &Decision) {
        let is_held = |number: usize| decision.policies().get(number).is_some_and(|standing| !standing.would_deny);
        self.units.retain(|units| is_held(units.number));
    }

    /// Keeps the holds that an allowed check has made, and renews them until they end.
    pub(crate) fn keep_made(&mut self, decision: &Decision) {
        self.retain_held(decision);
        self.is_made = true;
        self.local = (decision.source() == Source::Local).then(|| decision.is_owed());
        for units in &mut self.units {
            units.renewal = self.core.renew(&units.hold, self.local.is_some());
        }
    }

    /// Takes all holds out.
    pub(crate) fn take(&mut self) -> Self {
        let units = mem::take(&mut self.units);
        let (core, runtime) = (Arc::clone(&self.core), self.runtime.clone());
        Self { core, units, runtime, is_made: self.is_made, local: self.local }
    }

    /// Ends the holds for which `charged` returns what is charged, in the background. Keeps the others, and the slots
    /// of concurrency limits.
    pub(crate) fn settle(&mut self, charged: impl Fn(&Policy) -> Option<Charged>) {
        // Every answer before the first end: a panic of `charged` leaves all holds to the end of the request.
        let answer = |policy: &Policy| if policy.is_concurrent() { None } else { charged(policy) };
        let answers: SmallVec<[_; 2]> = self.policies().map(answer).collect();
        let mut settled: SmallVec<[_; 1]> = SmallVec::new();
        for (units, answer) in mem::take(&mut self.units).into_iter().zip(answers) {
            match answer {
                Some(charged) => settled.push((units, charged)),
                None => self.units.push(units),
            }
        }
        self.end_these(settled);
    }

    /// Ends all holds in the background, each with what `charged` returns for its policy.
    pub(crate) fn end(&mut self, charged: impl Fn(&Policy) -> Charged) {
        let units = mem::take(&mut self.units).into_iter().map(|units| {
            let charged = charged(&units.hold.policy);
            (units, charged)
        });
        self.end_these(units);
    }

    fn end_these(&self, units: impl IntoIterator<Item = (HeldUnits, Charged)>) {
        for (HeldUnits { hold, held, renewal, .. }, charged) in units {
            drop(renewal);
            let actual = match charged {
                Charged::Units(units) => units,
                Charged::AsUnsettled if is_released(&hold) => 0,
                Charged::AsUnsettled | Charged::Held => held,
            };
            let (actual, is_dropped) = (hold.charged(actual), charged == Charged::AsUnsettled);
            let ending = Ending { hold, held, actual, is_dropped, is_uncertain: !self.is_made };
            match self.local {
                Some(is_owed) => drop(self.core.end_local_hold(ending, is_owed, self.runtime.as_ref())),
                None => self.core.end_hold_in_background(ending, self.runtime.as_ref()),
            }
        }
    }
}
