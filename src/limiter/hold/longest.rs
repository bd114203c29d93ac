//! Holds that have reached their longest age: they are not renewed any more, and those of a request end.

use std::sync::Arc;

use crate::{
    limiter::hold::{
        age::{AgedHold, Owner},
        request::HeldUnits,
        shared::SharedHolds,
    },
    observe::{Event, Warning},
    policy::Policy,
};

impl SharedHolds {
    /// Ends the holds of requests that are too old.
    pub(super) fn end_aged_holds(self: &Arc<Self>) {
        for AgedHold { hold, owner } in self.renewals.take_aged() {
            self.warn_of_longest(&hold.policy);
            if let Some(Owner { request, held, origin, claim }) = owner
                && claim.claim()
            {
                let (charged, policy) = (request.charged(&hold.policy), hold.policy.clone());
                self.end_units(HeldUnits::new(hold, held), charged, true, &origin);
                request.on_ended(&policy);
            }
        }
    }

    /// Warns once of a hold that has reached its longest age.
    fn warn_of_longest(&self, policy: &Policy) {
        if let (Some(listener), Some(longest)) =
            (&self.calls.listener, policy.holds().and_then(|holds| holds.longest()))
            && self.renewals.too_long.claim()
        {
            listener.on_event(&Event::Warning(Warning::held_too_long(policy.name(), longest)));
        }
    }
}
