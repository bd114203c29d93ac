//! What one request owes.

use smallvec::SmallVec;

use crate::{error::ConfigError, key::Key, policy::Policy};

/// All charges of one request: paid together or not at all.
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

/// One thing to pay: so many units, by a key, under a policy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Charge {
    /// Who pays.
    pub key: Key,
    /// Under which policy.
    pub policy: Policy,
    /// How many units. 0 charges nothing and always passes.
    pub cost: u32,
}

impl Check {
    /// The most charges that a check may have, 64: judging one stays well below a millisecond.
    pub const MAX_CHARGES: usize = 64;

    /// Creates a check with one charge.
    pub fn new(key: impl Into<Key>, policy: &Policy, cost: u32) -> Self {
        Self { charges: SmallVec::from([Charge { key: key.into(), policy: policy.clone(), cost }]) }
    }

    /// Adds a charge. A second one for the same key and policy adds to the first one's cost.
    ///
    /// # Errors
    ///
    /// [`ConfigError::DuplicatePolicy`] if the key is charged under another policy of the same name: the two would
    /// count in one place; [`ConfigError::TooManyCharges`] beyond [`MAX_CHARGES`](Self::MAX_CHARGES).
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

    /// Takes the charge out, if there is one alone.
    pub(crate) fn take_single(&mut self) -> Option<Charge> {
        if self.charges.len() == 1 { self.charges.pop() } else { None }
    }

    /// Takes the charges out.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Charge> {
        self.charges.drain(..)
    }

    pub(crate) fn empty() -> Self {
        Self { charges: SmallVec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, key: Key, policy: Policy, cost: u32) -> Result<(), ConfigError> {
        // Nearly always the only one.
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

    /// Adds a charge of a layer's. There a second one for the same key and policy is a mistake: the layer has the policy
    /// twice.
    #[inline]
    pub(crate) fn push_distinct(&mut self, key: Key, policy: Policy, cost: u32) -> Result<(), ConfigError> {
        if !self.charges.is_empty() && self.namesake(&key, &policy).is_some() {
            return Err(ConfigError::DuplicatePolicy { policy: policy.name().to_owned() });
        }
        self.push(key, policy, cost)
    }

    /// The charge that counts in the same place.
    fn namesake(&mut self, key: &Key, policy: &Policy) -> Option<&mut Charge> {
        let same =
            |charge: &&mut Charge| charge.key == *key && charge.policy.name().eq_ignore_ascii_case(policy.name());
        self.charges.iter_mut().find(same)
    }
}
