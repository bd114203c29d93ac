//! The charges of a request, from its keys, policies and costs.

use crate::{
    check::Check,
    cost::{RequestCost, Units},
    error::ConfigError,
    key::Key,
    limiter::Limiter,
    observe::RefusalReason,
    policy::Policy,
};

/// Why a request is refused. Boxed, so that the results of other requests are small.
pub(super) type Refusal = Box<RefusalReason>;

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
    /// The units that a charge under a policy with holds holds; `None` if it is no hold.
    #[cold]
    fn units(&self, policy: &Policy, cost: Units) -> Result<Option<u64>, ConfigError> {
        if !self.settles && !policy.is_concurrent() {
            return Ok(None);
        }
        // Without a hold, nothing can be settled. So an estimate of 0 that a client has sent must hold a unit, or the
        // request would be free whatever its bill says. A fixed cost of 0 is the decision of the service.
        let least = u64::from(self.settles && cost.is_computed);
        let units = cost.units.max(least);
        if units == 0 {
            return Ok(None);
        }
        if !self.limiter.has_holds() {
            return Err(ConfigError::store_without_holds());
        }
        if !(self.can_hold)() {
            let name = policy.name();
            let message = format!(
                "policy {name:?} has holds until the response body has ended, and the bodies of this service are \
                 not those of axum; call `.with_held_body()` on the layer, which wraps them"
            );
            return Err(ConfigError::new(message).about(name));
        }
        Ok(Some(units))
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
            return Err(misconfigured(ConfigError::no_policy()));
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
        if is_above_limit(policy, cost) {
            return Err(above_limit(policy, cost));
        }
        self.push(key, policy, cost)
    }

    /// Adds charges of which the first that fits is charged.
    ///
    /// # Errors
    ///
    /// The reason for which the request is refused, such as a cost above all of the limits.
    #[cold]
    pub(super) fn add_first_of(&mut self, key: &Key, policies: &[Policy]) -> Result<(), Refusal> {
        if !self.holding.limiter.has_alternatives() {
            return Err(misconfigured(ConfigError::store_without_alternatives()));
        }
        let from = self.check.charges().len();
        let (mut fits, mut refusal) = (false, None);
        for policy in policies {
            let policy = if self.shadow { policy.shadow() } else { policy };
            let cost = self.cost.under(policy);
            match is_above_limit(policy, cost) {
                true => refusal = Some(above_limit(policy, cost)),
                false => fits = true,
            }
            self.push(key.clone(), policy, cost)?;
        }
        match refusal.filter(|_| !fits) {
            Some(refusal) => Err(refusal),
            None => self.check.join_alternatives(from).map_err(misconfigured),
        }
    }

    #[inline]
    fn push(&mut self, key: Key, policy: &Policy, cost: Units) -> Result<(), Refusal> {
        let held = match policy.holds() {
            Some(_) => self.holding.units(policy, cost).map_err(misconfigured)?,
            None => None,
        };
        self.check.push_distinct(key, policy.clone(), held.unwrap_or(cost.units), held.is_some()).map_err(misconfigured)
    }
}

fn is_above_limit(policy: &Policy, cost: Units) -> bool {
    cost.units > policy.capacity() && !policy.is_shadow()
}

fn above_limit(policy: &Policy, cost: Units) -> Refusal {
    let (policy, limit) = (policy.name().to_owned(), policy.capacity());
    RefusalReason::CostAboveLimit { policy, cost: cost.units, limit }.into()
}

pub(super) fn misconfigured(error: ConfigError) -> Refusal {
    RefusalReason::Misconfigured(error).into()
}
