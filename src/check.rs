//! Checks: the charges of one request.

mod by_policy;
pub(crate) mod first_of;
pub(crate) mod open_hold;
mod place;

use std::num::NonZeroU64;

use smallvec::SmallVec;

use self::place::Place;
use crate::error::{ConfigError, FirstMistake};
#[cfg(feature = "plans")]
use crate::policy::Policies;
use crate::policy::{Policy, validate_beside_alternatives};
use crate::{hold::random_id, key::Key};

/// All charges of one request: charged together or not at all.
///
/// Charges under [shadow](Policy::with_shadow) policies do not decide: a check that its other charges pass is charged,
/// and each shadow charge that does not fit is left out.
///
/// A check keeps the first mistake of its charges and of their policies. Each call with the check returns it as an
/// error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall), charges nothing, and every failure policy refuses the
/// check.
///
/// # Examples
///
/// ```
/// use tollgate::{Check, Limiter, MemoryStore, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(MemoryStore::new());
/// let per_user = Policy::per_minute("per-user", 10)?;
/// let per_tenant = Policy::per_day("per-tenant", 1_000)?;
/// let check = Check::new("user:17", &per_user, 1).and("tenant:3", &per_tenant, 1);
/// assert!(limiter.check_all(check).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Check {
    charges: SmallVec<[Charge; 1]>,
    mistake: FirstMistake,
}

/// One charge: units of a policy, charged to a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Charge {
    /// The key that is charged.
    pub key: Key,
    /// The policy under which the key is charged.
    pub policy: Policy,
    /// The cost in units. 0 charges nothing and passes, unless [a ban denies it](Self::is_denied_by_ban).
    pub cost: u64,
    /// The name of the hold if the units are held until they are settled; `None` for a plain charge. Random bits: two
    /// holds of one key and policy have different names, also if different processes make them, so a change that is
    /// sent twice never ends another hold.
    pub hold: Option<NonZeroU64>,
    /// Whether the charge is one of several alternatives.
    pub(crate) place: Place,
    /// Whether a ban denies the charge although it costs nothing.
    pub(crate) is_free_request: bool,
}

impl Check {
    /// The largest number of charges of a check: 64. A store judges a check of this size in well below a millisecond.
    pub const MAX_CHARGES: usize = 64;

    /// Creates a check with one charge.
    pub fn new(key: impl Into<Key>, policy: &Policy, cost: u64) -> Self {
        let charges = SmallVec::from_buf([Charge::new(key.into(), policy.clone(), cost)]);
        Self { charges, mistake: policy.mistake() }
    }

    /// Creates a check that holds `cost` units, for [`Limiter::hold_all`](crate::Limiter::hold_all). It may have the
    /// mistakes of [`and_hold`](Self::and_hold).
    pub fn hold(key: impl Into<Key>, policy: &Policy, cost: u64) -> Self {
        Self::empty().and_hold(key, policy, cost)
    }

    /// Adds a hold of `cost` units. A second hold of the same key and policy adds to the cost of the first.
    ///
    /// It is a mistake if the policy has no [holds](Policy::with_holds), if `cost` is 0, or if the check has a plain
    /// charge of the same key and policy. Otherwise as [`and`](Self::and).
    pub fn and_hold(mut self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Self {
        let charge = policy.validate().and_then(|()| Charge::held(key.into(), policy.clone(), cost));
        let added = charge.and_then(|charge| self.push_another(charge));
        self.mistake.keep(added);
        self
    }

    /// Adds a charge. A second charge of the same key and policy adds to the cost of the first.
    ///
    /// It is a mistake if the key is charged under another policy of the same name, because the two policies would
    /// share their counts, if the check holds units of the same key and policy, if it has
    /// [`MAX_CHARGES`](Self::MAX_CHARGES) charges already, or if the policy has a [mistake](Policy#mistakes).
    pub fn and(mut self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Self {
        let added = policy.validate().and_then(|()| self.push(key.into(), policy.clone(), cost));
        self.mistake.keep(added);
        self
    }

    #[inline]
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.mistake.found()
    }

    /// The charges, in the order in which they were added.
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    pub(crate) fn first_key(&self) -> Option<&Key> {
        self.charges.first().map(|charge| &charge.key)
    }

    /// Sets the cost of the first charge, which is the only one.
    pub(crate) fn set_cost(&mut self, cost: u64) {
        if let Some(charge) = self.charges.first_mut() {
            charge.cost = cost;
        }
    }

    /// Takes the last charge out of the check.
    #[inline]
    pub(crate) fn take_last(&mut self) -> Option<Charge> {
        self.charges.pop()
    }

    /// Takes all charges out of the check.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Charge> {
        self.charges.drain(..)
    }

    /// Gives new names to all holds.
    pub(crate) fn rename_holds(&mut self) {
        for id in self.charges.iter_mut().filter_map(|charge| charge.hold.as_mut()) {
            *id = random_id();
        }
    }

    /// The error of a check that makes holds, or charges units of a concurrency limit, where no handle is returned: the
    /// units would never come back.
    #[inline]
    pub(crate) fn refuse_holds(&self) -> Result<(), ConfigError> {
        let needs_handle = |charge: &&Charge| charge.hold.is_some() || charge.policy.is_concurrent() && charge.cost > 0;
        let Some(charge) = self.charges.iter().find(needs_handle) else { return Ok(()) };
        Err(charge.needs_handle())
    }

    /// Whether a denial may leave holds of the check for a moment, so that it must not be sent again under their names.
    ///
    /// A store on several nodes may have made the holds of one node before another node denies the check. It releases
    /// them by their names, and a release that is late would end the hold of a second attempt.
    pub(crate) fn may_hold_in_part(&self) -> bool {
        self.charges.len() > 1 && self.charges.iter().any(|charge| charge.hold.is_some())
    }

    /// Whether there are charges, and all go to the store as they are, without shards and leases.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        match &self.charges[..] {
            [one] => one.policy.is_direct(),
            charges => !charges.is_empty() && charges.iter().all(|charge| charge.policy.is_direct()),
        }
    }

    /// Whether a charge is under a policy with shards. No store gets such a check: the limiter chooses shards first.
    #[inline]
    pub(crate) fn is_sharded(&self) -> bool {
        self.charges.iter().any(|charge| charge.policy.is_sharded())
    }

    /// Whether all charges are under shadow policies, so that nothing can refuse the check.
    pub(crate) fn is_shadow(&self) -> bool {
        !self.charges.is_empty() && self.charges.iter().all(|charge| charge.policy.is_shadow())
    }

    pub(crate) fn empty() -> Self {
        Self { charges: SmallVec::new(), mistake: FirstMistake::NONE }
    }

    /// A check of `cost` units under each policy of a plan, whose policies have different names. `mistake` is that of
    /// the plans.
    #[cfg(feature = "plans")]
    pub(crate) fn of_plan(key: &Key, plan: Policies, cost: u64, mistake: &FirstMistake) -> Self {
        let are_alternatives = plan.are_alternatives;
        let charges = plan.list.into_iter().map(|policy| Charge::new(key.clone(), policy, cost));
        let mut check = Self { mistake: mistake.clone(), ..Self::of_distinct(charges) };
        if are_alternatives {
            let joined = check.join_alternatives(0);
            check.mistake.keep(joined);
        }
        check
    }

    /// A check of charges that cannot share a count.
    pub(crate) fn of_distinct(charges: impl IntoIterator<Item = Charge>) -> Self {
        Self { charges: charges.into_iter().collect(), mistake: FirstMistake::NONE }
    }

    #[inline]
    pub(crate) fn push(&mut self, key: Key, policy: Policy, cost: u64) -> Result<(), ConfigError> {
        // Most checks have one charge.
        if self.charges.is_empty() {
            self.charges.push(Charge::new(key, policy, cost));
            return Ok(());
        }
        self.push_another(Charge::new(key, policy, cost))
    }

    /// Adds a charge or a hold.
    pub(crate) fn push_another(&mut self, added: Charge) -> Result<(), ConfigError> {
        let full = self.charges.len() == Self::MAX_CHARGES;
        match self.namesake(&added.key, &added.policy) {
            None if full => return Err(ConfigError::too_many_charges(Self::MAX_CHARGES)),
            None => {
                if self.has_alternatives() {
                    validate_beside_alternatives(&added.policy)?;
                }
                self.charges.push(added);
            }
            Some(charge) if charge.is_alternative() => {
                return Err(ConfigError::duplicate_policy(added.policy.name()));
            }
            Some(charge) if charge.policy != added.policy => {
                return Err(ConfigError::duplicate_policy(added.policy.name()));
            }
            Some(charge) if charge.hold.is_some() != added.hold.is_some() => {
                let name = added.policy.name();
                let message = format!(
                    "one check both holds and charges units of one key under policy {name:?}; use two checks, or hold \
                     all of them"
                );
                return Err(ConfigError::new(message).about(name));
            }
            Some(charge) => charge.cost = charge.cost.saturating_add(added.cost),
        }
        Ok(())
    }

    /// Adds a charge of a layer, or a hold. A second charge of the same key and policy is an error here, because it
    /// means that the layer contains the policy twice.
    #[inline]
    pub(crate) fn push_distinct(&mut self, key: Key, policy: Policy, cost: u64, held: bool) -> Result<(), ConfigError> {
        if !self.charges.is_empty() && self.namesake(&key, &policy).is_some() {
            return Err(ConfigError::duplicate_policy(policy.name()));
        }
        if held {
            return self.push_another(Charge::held(key, policy, cost)?);
        }
        self.push(key, policy, cost)
    }

    /// Lets a ban deny the last charge, which costs nothing.
    #[cold]
    pub(crate) fn mark_free_request(&mut self) {
        if let Some(charge) = self.charges.last_mut() {
            charge.is_free_request = true;
        }
    }

    /// The charge that would share its count with a charge of this key and policy.
    fn namesake(&mut self, key: &Key, policy: &Policy) -> Option<&mut Charge> {
        let same =
            |charge: &&mut Charge| charge.key == *key && charge.policy.name().eq_ignore_ascii_case(policy.name());
        self.charges.iter_mut().find(same)
    }
}

impl Charge {
    /// A plain charge.
    #[inline]
    pub(crate) fn new(key: Key, policy: Policy, cost: u64) -> Self {
        Self { key, policy, cost, hold: None, place: Place::Alone, is_free_request: false }
    }

    /// A hold with a new name.
    pub(crate) fn held(key: Key, policy: Policy, cost: u64) -> Result<Self, ConfigError> {
        if policy.is_blocked() {
            // Nothing is ever held: the check is denied, or the policy is a shadow policy.
            return Ok(Self::new(key, policy, cost));
        }
        if policy.holds().is_none() {
            return Err(ConfigError::policy_without_holds(policy.name()));
        }
        if cost == 0 {
            let message = "a hold of 0 units would hold nothing; use 1 or more, the least that the work can cost";
            return Err(ConfigError::of_policy(policy.name(), message));
        }
        Ok(Self { hold: Some(random_id()), ..Self::new(key, policy, cost) })
    }

    /// Whether a ban of the key denies the charge: its cost is above 0, or it is the charge of a request under a layer,
    /// whose requests are all refused during a ban.
    pub fn is_denied_by_ban(&self) -> bool {
        self.cost > 0 || self.is_free_request
    }

    /// The error of a hold, or of a charge under a concurrency limit, where no handle is returned.
    #[cold]
    fn needs_handle(&self) -> ConfigError {
        let name = self.policy.name();
        if self.hold.is_none() {
            return ConfigError::concurrency_needs_hold(name);
        }
        let message = format!(
            "the check holds units under policy {name:?}, and they could never be settled; call `Limiter::hold_all`, \
             which returns a handle"
        );
        ConfigError::new(message).about(name)
    }

    /// The charge of one shard, counted from 0; this charge itself under a policy without shards. The key of a shard
    /// gives it a hash tag of its own on a cluster.
    pub(crate) fn of_shard(&self, number: u32) -> Self {
        let shards = self.policy.shard_policies();
        match usize::try_from(number).ok().and_then(|number| shards.get(number)) {
            Some(shard) => {
                let key = Key::join([self.key.clone(), Key::from(number)]);
                Self { is_free_request: self.is_free_request, ..Self::new(key, shard.clone(), self.cost) }
            }
            None => self.clone(),
        }
    }

    /// The charges of all shards; this charge itself under a policy without shards.
    pub(crate) fn of_all_shards(&self) -> impl Iterator<Item = Self> {
        (0..self.policy.shards()).map(|number| self.of_shard(number))
    }
}
