//! How a hold ends: how old it may get, what a hold of a request needs to end by itself, and its end before the store
//! has answered it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt::Debug, sync::Arc};

use tokio::{runtime::Handle, time::Instant};

use crate::error::{Error, ErrorKind};
use crate::hold::{HoldChange, SettleAnswer};
use crate::{check::open_hold::OpenHold, observe::HoldEnd, policy::Policy};

/// What is charged when holds end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Charged {
    /// What the policy says about holds that are not settled.
    AsUnsettled,
    /// The units that are held.
    Held,
    /// This number of units.
    Units(u64),
}

/// Where the holds of a request come from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The runtime of the request. Used if the body is dropped outside of a runtime.
    pub(super) runtime: Option<Handle>,
    /// Whether the check was allowed. If not, the store may have made the holds all the same, and observers do not know
    /// of them.
    pub(super) is_made: bool,
    /// If the local fallback has made the holds, whether the store is to be charged for them.
    pub(super) local: Option<bool>,
}

/// The request of a hold that may get too old.
pub(crate) trait OnLongest: Debug + Send + Sync {
    /// What the hold charges if it ends now. `None` if the request is just ending it.
    fn charged(&self, policy: &Policy) -> Option<Charged>;

    /// The hold has ended because of its age.
    fn on_ended(&self, policy: &Policy);
}

/// The longest age of a hold.
#[derive(Debug)]
pub(super) struct Age {
    /// When the hold is too old.
    pub(super) at: Instant,
    /// `None` for a slot whose owner ends it: it is renewed no longer.
    pub(super) owner: Option<Owner>,
}

/// What ends a hold of a request when it is too old.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) request: Arc<dyn OnLongest>,
    pub(super) held: u64,
    pub(super) origin: Origin,
    pub(super) claim: Claim,
}

/// A hold that is too old.
pub(super) struct AgedHold {
    pub(super) hold: OpenHold,
    pub(super) owner: Option<Owner>,
}

/// The right to end a hold, which is given once.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Returns `true` for the first caller only.
    pub(super) fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

impl Age {
    /// The longest age of a hold that is made now; `None` without one.
    pub(super) fn of(policy: &Policy, owner: Option<Owner>) -> Option<Self> {
        let longest = policy.holds()?.longest()?;
        Some(Self { at: Instant::now() + longest, owner })
    }

    pub(super) fn claim(&self) -> Option<Claim> {
        self.owner.as_ref().map(|owner| owner.claim.clone())
    }
}

/// The end of a hold, which has to reach the store.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) hold: OpenHold,
    /// The units that are held.
    pub(super) held: u64,
    /// The units to charge.
    pub(super) actual: u64,
    /// How observers see the end if it is no settlement: [`HoldEnd::Dropped`] or [`HoldEnd::TooLong`].
    pub(super) cause: Option<HoldEnd>,
    /// Whether the process does not know if the store has made the hold. The hold may still be on its way to the
    /// store. Observers do not hear of its end.
    pub(super) is_uncertain: bool,
}

impl Ending {
    /// The release of a hold that the store may have made, or may still make.
    pub(super) fn release_of_uncertain(hold: OpenHold, held: u64) -> Self {
        Self { hold, held, actual: 0, cause: None, is_uncertain: true }
    }

    pub(super) fn change(&self) -> HoldChange {
        HoldChange::Settle(self.actual)
    }

    /// Whether this answer is the last one, so that the end is not sent again. The store may receive an uncertain hold
    /// after its end, over another connection. A malformed change would fail again.
    pub(super) fn is_ended_by(&self, answer: &Result<SettleAnswer, Error>) -> bool {
        match answer {
            Ok(settlement) => !self.is_uncertain || *settlement == SettleAnswer::Settled,
            Err(error) => matches!(error.kind(), ErrorKind::BadKey | ErrorKind::InvalidCall),
        }
    }

    /// How the hold ends if the store settles it.
    pub(super) fn end(&self) -> HoldEnd {
        self.cause.unwrap_or(if self.actual == 0 { HoldEnd::Released } else { HoldEnd::Settled })
    }
}
