//! Rules that are replaced while their layers serve requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};

use super::value::Rules;
use crate::{error::ConfigError, limiter::Limiter};

/// The rules of one layer and its clones, and what is needed to replace them.
pub(crate) struct Follower {
    current: ArcSwap<Rules>,
    /// What the layer's setters have set. It precedes the settings of all rules that replace the present ones.
    own: Rules,
    limiter: Limiter,
    owner: Arc<dyn RulesOwner>,
}

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

    /// Adds a follower that has no settings of its own.
    pub(crate) fn add(&mut self, rules: Rules, limiter: Limiter, owner: Arc<dyn RulesOwner>) -> Arc<Follower> {
        self.insert(Follower { current: ArcSwap::from_pointee(rules), own: Rules::default(), limiter, owner })
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

    /// The rules that follow from `base`: with the layer's own settings before those of `base`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if they do not fit together.
    pub(crate) fn derive(&self, base: Rules) -> Result<Rules, ConfigError> {
        let rules = self.own.over(base);
        rules.validate(&self.limiter)?;
        Ok(rules)
    }

    /// Replaces the rules for all requests that start from now on. Returns the old rules.
    pub(crate) fn swap(&self, rules: Rules) -> Arc<Rules> {
        self.current.swap(Arc::new(rules))
    }

    /// The follower of a layer whose setter has made `change`.
    pub(super) fn changed(&self, change: impl Fn(&mut Rules)) -> Arc<Self> {
        let mut followers = self.owner.followers().lock();
        let (mut own, mut current) = (self.own.clone(), Rules::clone(&self.load()));
        change(&mut own);
        change(&mut current);
        let (limiter, owner) = (self.limiter.clone(), Arc::clone(&self.owner));
        followers.insert(Self { current: ArcSwap::from_pointee(current), own, limiter, owner })
    }
}
