//! Checks: the charges of one request.

use smallvec::SmallVec;

use crate::{error::ConfigError, key::Key, policy::Policy};

/// All charges of one request: charged together or not at all.
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
/// let check = Check::new("user:17", &per_user, 1).and("tenant:3", &per_tenant, 1)?;
/// assert!(limiter.check_all(check).await?.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Check {
    charges: SmallVec<[Charge; 1]>,
}

/// One charge: units of a policy, charged to a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Charge {
    /// The key that is charged.
    pub key: Key,
    /// The policy under which the key is charged.
    pub policy: Policy,
    /// The cost in units. 0 charges nothing and always passes.
    pub cost: u32,
}

impl Check {
    /// The largest number of charges of a check: 64. A store judges a check of this size in well below a millisecond.
    pub const MAX_CHARGES: usize = 64;

    /// Creates a check with one charge.
    pub fn new(key: impl Into<Key>, policy: &Policy, cost: u32) -> Self {
        Self { charges: SmallVec::from([Charge { key: key.into(), policy: policy.clone(), cost }]) }
    }

    /// Adds a charge. A second charge of the same key and policy adds to the cost of the first.
    ///
    /// # Errors
    ///
    /// [`ConfigError::DuplicatePolicy`] if the key is charged under another policy of the same name, because the two
    /// policies would share their counts. [`ConfigError::TooManyCharges`] if the check has
    /// [`MAX_CHARGES`](Self::MAX_CHARGES) charges already.
    pub fn and(mut self, key: impl Into<Key>, policy: &Policy, cost: u32) -> Result<Self, ConfigError> {
        self.push(key.into(), policy.clone(), cost)?;
        Ok(self)
    }

    /// The charges, in the order in which they were added.
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    pub(crate) fn first_key(&self) -> Option<&Key> {
        self.charges.first().map(|charge| &charge.key)
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

    /// Whether a charge is under a policy with shards. No store gets such a check: the limiter chooses shards first.
    #[inline]
    pub(crate) fn is_sharded(&self) -> bool {
        self.charges.iter().any(|charge| charge.policy.is_sharded())
    }

    pub(crate) fn empty() -> Self {
        Self { charges: SmallVec::new() }
    }

    /// A check of charges that cannot share a count.
    pub(crate) fn of_distinct(charges: impl IntoIterator<Item = Charge>) -> Self {
        Self { charges: charges.into_iter().collect() }
    }

    #[inline]
    pub(crate) fn push(&mut self, key: Key, policy: Policy, cost: u32) -> Result<(), ConfigError> {
        // Most checks have one charge.
        if self.charges.is_empty() {
            self.charges.push(Charge { key, policy, cost });
            return Ok(());
        }
        self.push_another(key, policy, cost)
    }

    fn push_another(&mut self, key: Key, policy: Policy, cost: u32) -> Result<(), ConfigError> {
        let full = self.charges.len() == Self::MAX_CHARGES;
        match self.namesake(&key, &policy) {
            None if full => return Err(ConfigError::TooManyCharges { most: Self::MAX_CHARGES }),
            None => self.charges.push(Charge { key, policy, cost }),
            Some(charge) if charge.policy == policy => charge.cost = charge.cost.saturating_add(cost),
            Some(_) => return Err(ConfigError::DuplicatePolicy { policy: policy.name().to_owned() }),
        }
        Ok(())
    }

    /// Adds a charge of a layer. A second charge of the same key and policy is an error here, because it means that the
    /// layer contains the policy twice.
    #[inline]
    pub(crate) fn push_distinct(&mut self, key: Key, policy: Policy, cost: u32) -> Result<(), ConfigError> {
        if !self.charges.is_empty() && self.namesake(&key, &policy).is_some() {
            return Err(ConfigError::DuplicatePolicy { policy: policy.name().to_owned() });
        }
        self.push(key, policy, cost)
    }

    /// The charge that would share its count with a charge of this key and policy.
    fn namesake(&mut self, key: &Key, policy: &Policy) -> Option<&mut Charge> {
        let same =
            |charge: &&mut Charge| charge.key == *key && charge.policy.name().eq_ignore_ascii_case(policy.name());
        self.charges.iter_mut().find(same)
    }
}

impl Charge {
    /// The charge of one shard, counted from 0; this charge itself under a policy without shards. The key of a shard
    /// gives it a hash tag of its own on a cluster.
    pub(crate) fn of_shard(&self, number: u32) -> Self {
        let shards = self.policy.shard_policies();
        match usize::try_from(number).ok().and_then(|number| shards.get(number)) {
            Some(shard) => {
                let key = Key::join([self.key.clone(), Key::from(number)]);
                Self { key, policy: shard.clone(), cost: self.cost }
            }
            None => self.clone(),
        }
    }

    /// The charges of all shards; this charge itself under a policy without shards.
    pub(crate) fn of_all_shards(&self) -> impl Iterator<Item = Self> {
        (0..self.policy.shards()).map(|number| self.of_shard(number))
    }
}
