//! What a layer does with the holds of a request once the response is known.

use std::sync::Arc;

use http::response::Parts;

use crate::{
    limiter::{Charged, RequestHolds},
    policy::Policy,
};

/// How the holds of a request end: decided by the response, in the closure of
/// [`RateLimitLayer::with_settlement`](crate::RateLimitLayer::with_settlement).
///
/// Slots of [`Policy::concurrent`](crate::Policy::concurrent) do not depend on it: they are free when the response body
/// has ended, and nothing is ever charged for them.
///
/// # Examples
///
/// ```
/// use http::{StatusCode, response::Parts};
/// use tollgate::middleware::Settlement;
///
/// /// Only failed logins count.
/// fn failed_logins(response: &Parts) -> Settlement {
///     if response.status == StatusCode::UNAUTHORIZED { Settlement::Held } else { Settlement::Nothing }
/// }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Settlement {
    /// Settles when the response body has ended, failed or been dropped: charges what the [`Bill`](super::Bill) says by
    /// then, or, if the handler has set nothing, the units that are held.
    AtEnd,
    /// Charges this number of units at once, instead of those that are held. It may be more than was held: later
    /// requests then wait until the excess has left the window.
    Units(u64),
    /// Charges the units that are held, at once.
    Held,
    /// Charges nothing: the units that are held are free at once.
    Nothing,
}

impl Settlement {
    /// What is charged now; `None`: at the end.
    fn charged(self) -> Option<Charged> {
        match self {
            Self::AtEnd => None,
            Self::Units(units) => Some(Charged::Units(units)),
            Self::Held => Some(Charged::Held),
            Self::Nothing => Some(Charged::Units(0)),
        }
    }
}

/// One answer for all holds.
type SettleAll = dyn Fn(&Parts) -> Settlement + Send + Sync;
/// An answer for each policy.
type SettleEach = dyn Fn(&Parts, &Policy) -> Settlement + Send + Sync;

/// Decides how the holds of a request end, by its response.
#[derive(Clone)]
pub(crate) enum Settling {
    All(Arc<SettleAll>),
    Each(Arc<SettleEach>),
}

impl Settling {
    /// Ends the holds that the response decides.
    pub(super) fn settle(&self, response: &Parts, holds: &mut RequestHolds) {
        match self {
            Self::All(settle) => {
                let charged = settle(response).charged();
                holds.settle(|_| charged);
            }
            Self::Each(settle) => holds.settle(|policy| settle(response, policy).charged()),
        }
    }
}
