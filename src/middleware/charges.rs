//! The charges of a request, from its keys, policies and costs.

use super::prepare::Refusal;
use crate::{
    check::Check, cost::RequestCost, error::ConfigError, key::Key, limiter::Limiter, observe::RefusalReason,
    policy::Policy,
};

/// Adds the charges of a request to its check.
pub(super) struct Charges<'a> {
    check: &'a mut Check,
    cost: &'a RequestCost<'a>,
    /// Whether all policies act as shadow policies.
    shadow: bool,
    holding: Holding<'a>,
}

/// Which charges of a layer are holds.
pub(super) struct Holding<'a> {
    pub(super) limiter: &'a Limiter,
    /// Whether the layer settles what it holds.
    pub(super) settles: bool,
    /// Whether the responses of the service can carry a hold.
    pub(super) can_hold: fn() -> bool,
}

impl Holding<'_> {
    /// Whether a charge under a policy with holds is a hold.
    #[cold]
    fn is_hold(&self, policy: &Policy, cost: u32) -> Result<bool, ConfigError> {
        // A cost of 0 charges nothing, and there is no later cost to settle.
        if cost == 0 || !self.settles && !policy.is_concurrent() {
            return Ok(false);
        }
        if !self.limiter.has_holds() {
            return Err(ConfigError::StoreWithoutHolds);
        }
        if !(self.can_hold)() {
            return Err(ConfigError::BodyCannotHold { policy: policy.name().to_owned() });
        }
        Ok(true)
    }
}

impl<'a> Charges<'a> {
    pub(super) fn new(check: &'a mut Check, cost: &'a RequestCost<'a>, shadow: bool, holding: Holding<'a>) -> Self {
        Self { check, cost, shadow, holding }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.check.charges().is_empty()
    }

    pub(super) fn are_shadow(&self) -> bool {
        self.shadow
    }

    /// Adds the charges of `key` under `policies`.
    #[inline]
    pub(super) fn add(&mut self, key: Key, policies: &[Policy]) -> Result<(), Refusal> {
        let Some((last, others)) = policies.split_last() else {
            return Err(misconfigured(ConfigError::NoPolicy));
        };
        for policy in others {
            self.add_one(key.clone(), policy)?;
        }
        self.add_one(key, last)
    }

    #[inline]
    fn add_one(&mut self, key: Key, policy: &Policy) -> Result<(), Refusal> {
        let policy = if self.shadow { policy.shadow() } else { policy };
        let cost = self.cost.under(policy);
        if cost > policy.capacity() && !policy.is_shadow() {
            let (policy, limit) = (policy.name().to_owned(), policy.capacity());
            return Err(RefusalReason::CostAboveLimit { policy, cost, limit }.into());
        }
        let held = policy.holds().is_some() && self.holding.is_hold(policy, cost).map_err(misconfigured)?;
        self.check.push_distinct(key, policy.clone(), cost, held).map_err(misconfigured)
    }
}

fn misconfigured(error: ConfigError) -> Refusal {
    RefusalReason::Misconfigured(error).into()
}
