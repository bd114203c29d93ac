//! A store with two failure domains, which fail independently of each other.

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Key, Policy, failure::BreakerSettings};

use crate::support::unhealthy_store::UnhealthyStore;

/// Two stores, each with the keys of one failure domain.
#[derive(Clone, Debug)]
pub(crate) struct TwoDomainStore {
    pub(crate) domains: [UnhealthyStore; 2],
    pub(crate) breaker: Option<BreakerSettings>,
    pub(crate) domain_of: fn(&Key) -> usize,
}

impl Store for TwoDomainStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.domains[self.failure_domain_of(&check.charges()[0].key)].check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.domains[self.failure_domain_of(key)].reset(key, policy)
    }

    fn breaker(&self) -> Option<BreakerSettings> {
        self.breaker
    }

    fn failure_domains(&self) -> usize {
        2
    }

    fn failure_domain_of(&self, key: &Key) -> usize {
        (self.domain_of)(key)
    }
}
