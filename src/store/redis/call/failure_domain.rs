//! The failure domains of a cluster: groups of slots, each with its own breaker.

use super::super::net::slot::SLOT_COUNT;

/// The number of failure domains of a cluster. A master usually has neighbouring slots. With this number, few domains
/// contain slots of two masters, and each domain has enough traffic for its breaker.
pub(crate) const CLUSTER_DOMAINS: usize = 64;

/// The domain of `slot`, where neighbouring slots form `domains` domains of equal size.
pub(crate) fn domain_of(slot: u16, domains: usize) -> usize {
    usize::from(slot) * domains / usize::from(SLOT_COUNT)
}
