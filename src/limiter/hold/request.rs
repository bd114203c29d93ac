//! The holds of a request. The middleware decides later how each of them ends.

use std::{mem, sync::Arc};

use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::check::{Check, open_hold::OpenHold};
use crate::decision::{Decision, PolicyDecision};
use crate::limiter::hold::age::{Charged, Claim, Ending, OnLongest, Origin, Owner};
use crate::limiter::hold::{OpenHolds, is_released};
use crate::limiter::hold::{ends::SharedHolds, renewals::RenewedHold};
use crate::observe::{Event, HoldEnd, Warning};
use crate::{policy::Policy, verdict::Source};

/// The holds of a check: asked for, and then held if the check was allowed.
#[derive(Debug)]
pub(crate) struct RequestHolds {
    shared: Arc<SharedHolds>,
    units: Units,
    /// The policies of all holds that the check asks for.
    asked: SmallVec<[Policy; 1]>,
    origin: Origin,
}

type Units = SmallVec<[HeldUnits; 1]>;

/// One hold of a request.
#[derive(Debug)]
pub(super) struct HeldUnits {
    /// The number of the charge in its check.
    number: usize,
    hold: OpenHold,
    /// The units that are held.
    held: u64,
    /// The renewal of the hold, while its request lives.
    renewal: Option<RenewedHold>,
}

impl HeldUnits {
    /// Units that are not renewed.
    pub(super) fn new(hold: OpenHold, held: u64) -> Self {
        Self { number: 0, hold, held, renewal: None }
    }
}

impl RequestHolds {
    /// The holds that `check` asks for.
    pub(in crate::limiter) fn of(shared: Arc<SharedHolds>, check: &Check) -> Self {
        let units = check.holds().map(|(number, hold, held)| HeldUnits { number, ..HeldUnits::new(hold, held) });
        let origin = Origin { runtime: Handle::try_current().ok(), is_made: false, local: None };
        let units: Units = units.collect();
        let asked = units.iter().map(|units| units.hold.policy.clone()).collect();
        Self { shared, units, asked, origin }
    }

    /// What holds share, and the holds that an allowed check has made.
    pub(in crate::limiter) fn into_open(mut self, decision: &Decision) -> (Arc<SharedHolds>, OpenHolds) {
        self.retain_held(decision);
        (self.shared, self.units.into_iter().map(|units| (units.hold, units.held)).collect())
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// The policies of the holds.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.units.iter().map(|units| &units.hold.policy)
    }

    /// The policies of all holds that the check has asked for: also of those that were not made, or have ended.
    pub(crate) fn asked(&self) -> &[Policy] {
        &self.asked
    }

    /// What reports a name on the bill that is not one of a policy, if the report is due.
    pub(crate) fn name_report(&self) -> Option<NameReport> {
        let is_due = self.shared.calls.listener.is_some() && self.shared.renewals.unknown_name.is_due();
        is_due.then(|| NameReport { shared: Arc::clone(&self.shared), known: Vec::new() })
    }

    /// A shadow charge that did not fit is not held, and neither is anything without a verdict: what the store may have
    /// made all the same is being released.
    fn retain_held(&mut self, decision: &Decision) {
        // Of alternatives, the decision names the one that is held.
        let is_held = |units: &mut HeldUnits| {
            let is_named = |standing: &PolicyDecision| standing.policy.name() == units.hold.policy.name();
            let standing = decision.policies().get(units.number);
            standing.is_some_and(|standing| !standing.would_deny && is_named(standing))
        };
        self.units.retain(is_held);
    }

    /// Keeps the holds that an allowed check has made, and renews them until they end. `request` returns the
    /// request that hears when a hold exceeds the longest age of its policy. It is called if a policy has one.
    pub(crate) fn keep_holds_of(&mut self, decision: &Decision, request: impl FnOnce() -> Arc<dyn OnLongest>) {
        self.retain_held(decision);
        let local = (decision.source() == Source::Local).then(|| decision.is_owed());
        (self.origin.is_made, self.origin.local) = (true, local);
        let ages = self.policies().any(|policy| policy.holds().is_some_and(|holds| holds.longest().is_some()));
        let request = ages.then(request);
        for HeldUnits { hold, held, renewal, .. } in &mut self.units {
            let owner = request.as_ref().map(|request| Owner {
                request: Arc::clone(request),
                held: *held,
                origin: self.origin.clone(),
                claim: Claim::default(),
            });
            *renewal = self.shared.renew(hold, local.is_some(), owner);
        }
    }

    /// Takes all holds out.
    pub(crate) fn take(&mut self) -> Self {
        let (units, asked) = (mem::take(&mut self.units), mem::take(&mut self.asked));
        Self { shared: Arc::clone(&self.shared), units, asked, origin: self.origin.clone() }
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
        for (units, charged) in units {
            // A hold that was too old has ended.
            if units.renewal.as_ref().is_none_or(RenewedHold::claim) {
                self.shared.end_units(units, charged, false, &self.origin);
            }
        }
    }
}

/// Reports a cost on a bill under a name that no policy has.
#[derive(Debug)]
pub(crate) struct NameReport {
    shared: Arc<SharedHolds>,
    /// The names of the policies that have held units for the request.
    known: Vec<String>,
}

impl NameReport {
    /// Adds the names of policies.
    pub(crate) fn add(&mut self, policies: &[Policy]) {
        self.known.extend(policies.iter().map(|policy| policy.name().to_owned()));
    }

    /// Reports a name once for a limiter.
    pub(crate) fn report(self, name: &str) {
        if let (Some(listener), true) = (&self.shared.calls.listener, self.shared.renewals.unknown_name.claim()) {
            listener.on_event(&Event::of_warning(Warning::unknown_name_on_bill(name, &self.known)));
        }
    }
}

impl SharedHolds {
    /// Ends one hold of a request in the background.
    pub(super) fn end_units(self: &Arc<Self>, units: HeldUnits, charged: Charged, is_too_long: bool, origin: &Origin) {
        let HeldUnits { hold, held, renewal, .. } = units;
        drop(renewal);
        let actual = match charged {
            Charged::Units(units) => units,
            Charged::AsUnsettled if is_released(&hold) => 0,
            Charged::AsUnsettled | Charged::Held => held,
        };
        let cause = match charged {
            _ if is_too_long => Some(HoldEnd::TooLong),
            Charged::AsUnsettled => Some(HoldEnd::Dropped),
            Charged::Units(_) | Charged::Held => None,
        };
        let ending = Ending { actual: hold.charged(actual), hold, held, cause, is_uncertain: !origin.is_made };
        match origin.local {
            Some(is_owed) => drop(self.end_local_hold(ending, is_owed, origin.runtime.as_ref())),
            None => self.end_hold_in_background(ending, origin.runtime.as_ref()),
        }
    }
}
