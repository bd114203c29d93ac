//! The source of alternatives: of several policies, the first with room is charged.

use http::request::Parts;

use crate::policy::source::{IntoPolicies, Policies, PolicySource};
use crate::{error::ConfigError, key::Key, policy::limit::Policy};

/// Alternatives for each request: the first of these policies that has room is charged, and the others are not. An
/// included quota, then credits.
///
/// It is a source of policies for a layer and for plans, and closures that choose policies may return it. The rules are
/// those of [`Check::first_of`](crate::Check::first_of). Costs
/// [of one policy](crate::RateLimitLayer::with_cost_of) apply as ever, so the alternatives may have different costs. A
/// request whose cost is above all of the limits is refused with 400. Response fields are those of the policy that was
/// charged, and on a denial those of the policy with the shortest wait.
///
/// # Mistakes
///
/// It is a mistake of the layer if there is no policy, if two of the layer have one name, if only some alternatives are
/// [shadow policies](crate::Policy::with_shadow), if one is [blocked](crate::Policy::blocked), if a policy of the layer
/// has a [lease](crate::Policy::with_lease) or [shards](crate::Policy::with_shards), if a fixed cost is above all of
/// the limits, or if the store has no [alternatives](crate::store::Store::has_alternatives). If a closure returns the
/// alternatives, such a request gets 500, or 400 for its cost.
///
/// # Examples
///
/// ```
/// use tollgate::{
///     Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, policy::FirstOf,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let included = Policy::per_day("included", 1_000)?;
/// let credits = Policy::new("credits", 50_000, Policy::MAX_WINDOW)?;
/// let limiter = Limiter::new(MemoryStore::new());
/// let limit = RateLimitLayer::new(
///     limiter,
///     FirstOf::new([included, credits]),
///     PeerIp::new(),
/// )
/// .and(Policy::per_second("burst", 20)?, PeerIp::new())
/// .validated()?;
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FirstOf(Policies);

impl FirstOf {
    /// Creates alternatives, the first one first.
    pub fn new(policies: impl IntoPolicies) -> Self {
        Self(Policies { are_alternatives: true, ..policies.into_policies() })
    }
}

impl IntoPolicies for FirstOf {
    fn into_policies(self) -> Policies {
        self.0
    }
}

impl PolicySource for FirstOf {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.0.clone()
    }

    fn alternatives(&self) -> Option<&[Policy]> {
        Some(&self.0)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        validate_alternatives(self.0.iter())
    }
}

/// Returns why policies cannot be alternatives of one another.
pub(crate) fn validate_alternatives<'a>(
    mut policies: impl Iterator<Item = &'a Policy> + Clone,
) -> Result<(), ConfigError> {
    let (first, last) = (policies.clone().next(), policies.clone().last());
    let (Some(first), Some(last)) = (first, last) else { return Err(ConfigError::no_policy()) };
    if first.name() == last.name() {
        // One alone is a plain policy.
        return Ok(());
    }
    if let Some(other) = policies.clone().find(|other| other.is_shadow() != last.is_shadow()) {
        let (name, last) = (other.name(), last.name());
        let message = format!(
            "one of the alternatives {name:?} and {last:?} is a shadow policy, which denies nothing, so it is never known \
             which of them would be charged; make all of them shadow policies, or none"
        );
        return Err(ConfigError::new(message).about(name));
    }
    if let Some(blocked) = policies.clone().find(|policy| policy.is_blocked()) {
        let message = "it is blocked and never has room, so it is no alternative; leave it out, or charge it alone";
        return Err(ConfigError::of_policy(blocked.name(), message));
    }
    policies.try_for_each(validate_beside_alternatives)
}

/// Returns why a policy cannot be in one check with alternatives. They are judged by one count each, so no charge of
/// their check may be in several counts or in a block.
pub(crate) fn validate_beside_alternatives(policy: &Policy) -> Result<(), ConfigError> {
    // No store gets a charge under a blocked policy.
    if policy.is_direct() || policy.is_blocked() {
        return Ok(());
    }
    let name = policy.name();
    let message = format!(
        "policy {name:?} has a lease or shards, and a check of which the first of several policies is charged cannot \
         have either; leave them out, or use two checks"
    );
    Err(ConfigError::new(message).about(name))
}
