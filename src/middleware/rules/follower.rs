//! Rules that are replaced while their layers serve requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};

use super::value::{OtherPolicies, Rules};
use crate::{error::ConfigError, limiter::Limiter};

/// The rules of one layer and its clones, and what is needed to replace them.
pub(crate) struct Follower {
    current: ArcSwap<Rules>,
    /// The changes that the layer's setters have made. They apply to all rules that replace the present ones.
    changes: Vec<Change>,
    /// The policies of the further keys.
    others: OtherPolicies,
    /// Whether the layer settles holds.
    settles: bool,
    limiter: Limiter,
    owner: Arc<dyn RulesOwner>,
}

type Change = Arc<dyn Fn(&mut Rules) + Send + Sync>;

/// Replaces the rules of followers. Followers keep their owner alive.
pub(crate) trait RulesOwner: Send + Sync {
    fn followers(&self) -> &Followers;
}

/// The followers of one owner. Rules change, and followers are added, only under the lock.
#[derive(Default)]
pub(crate) struct Followers(Mutex<Vec<Weak<Follower>>>);

/// The lock on [`Followers`].
pub(crate) struct LockedFollowers<'a>(MutexGuard<'a, Vec<Weak<Follower>>>);

impl Followers {
    pub(crate) fn lock(&self) -> LockedFollowers<'_> {
        // Entries are added and removed as a whole, so a poisoned lock is usable.
        LockedFollowers(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl LockedFollowers<'_> {
    /// The followers whose layers exist.
    pub(crate) fn alive(&mut self) -> Vec<Arc<Follower>> {
        self.0.retain(|follower| follower.strong_count() > 0);
        self.0.iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds a follower without changes and without further keys.
    pub(crate) fn add(&mut self, rules: Rules, limiter: Limiter, owner: Arc<dyn RulesOwner>) -> Arc<Follower> {
        let current = ArcSwap::from_pointee(rules);
        self.insert(Follower { current, changes: Vec::new(), others: Vec::new(), settles: false, limiter, owner })
    }

    fn insert(&mut self, follower: Follower) -> Arc<Follower> {
        // Each setter of a layer makes a follower, and most live only until the next setter.
        self.0.retain(|follower| follower.strong_count() > 0);
        let follower = Arc::new(follower);
        self.0.push(Arc::downgrade(&follower));
        follower
    }
}

impl Follower {
    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<Rules>> {
        self.current.load()
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The rules that follow from `base`: with the changes of the layer's setters, and checked together with its
    /// further keys.
    pub(crate) fn derive(&self, mut base: Rules) -> Result<Rules, ConfigError> {
        self.changes.iter().for_each(|change| change(&mut base));
        base.validate(&self.others, self.settles, &self.limiter)?;
        Ok(base)
    }

    /// Replaces the rules for all requests that start from now on. Returns the old rules.
    pub(crate) fn swap(&self, rules: Rules) -> Arc<Rules> {
        self.current.swap(Arc::new(rules))
    }

    pub(super) fn changed(&self, change: impl Fn(&mut Rules) + Send + Sync + 'static) -> Arc<Self> {
        let mut followers = self.owner.followers().lock();
        let mut rules = Rules::clone(&self.load());
        change(&mut rules);
        followers.insert(self.copy(rules, Some(Arc::new(change)), self.others.clone()))
    }

    pub(super) fn with_others(&self, others: OtherPolicies) -> Arc<Self> {
        let mut followers = self.owner.followers().lock();
        let rules = Rules::clone(&self.load());
        followers.insert(self.copy(rules, None, others))
    }

    pub(super) fn settling(&self) -> Arc<Self> {
        let mut followers = self.owner.followers().lock();
        let rules = Rules::clone(&self.load());
        followers.insert(Self { settles: true, ..self.copy(rules, None, self.others.clone()) })
    }

    fn copy(&self, rules: Rules, change: Option<Change>, others: OtherPolicies) -> Self {
        Self {
            current: ArcSwap::from_pointee(rules),
            changes: self.changes.iter().cloned().chain(change).collect(),
            others,
            settles: self.settles,
            limiter: self.limiter.clone(),
            owner: Arc::clone(&self.owner),
        }
    }
}
