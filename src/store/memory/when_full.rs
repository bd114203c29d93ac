//! What a new key gets from a full store.

/// What a new key gets from a [`MemoryStore`](crate::MemoryStore) that is full of live counts. See
/// [`MemoryStore::when_full`](crate::MemoryStore::when_full).
///
/// Every choice judges keys that already have a count as usual. A store that is large enough for the clients of one
/// window never gets full.
///
/// | can a flood of made-up keys | `EvictLeastSpent` | `ShareOneKey` | `Deny` |
/// | --- | --- | --- | --- |
/// | reset a client's count to zero? | only by spending as large a share of the limit with each key | no | no |
/// | spend a limit with each of its keys? | yes | no, one limit with all new keys together | no |
/// | keep new clients out? | no | yes, once it has spent the shared bucket | yes |
///
/// Choose `EvictLeastSpent` where keys are hard to make up (accounts, verified API keys) or where a refused client is
/// worse than an unlimited one. Choose `ShareOneKey` for keys that clients can make up (addresses, names in a login
/// form), and `Deny` where new keys must not even share one limit (attempts at a secret).
///
/// # Examples
///
/// ```
/// use tollgate::{MemoryStore, store::WhenFull};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let logins = MemoryStore::with_capacity(100_000)?.when_full(WhenFull::ShareOneKey);
/// # let _ = logins;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum WhenFull {
    /// Denies checks of new keys while the store is full. No live count is dropped.
    ///
    /// Retry-After is the time until the first of the inspected counts becomes idle and frees its place; for a check
    /// with several new counts, until there is a place for each. For every new key the store inspects a few more
    /// counts, so a place may become free earlier. A new key gets the free place unless another key was faster or the
    /// count was charged again. Retry-After is never longer than the longest window in the store (two windows of a
    /// sliding window counter, the time to refill a bucket). A cost of 0 passes.
    Deny,
    /// Drops a live count, whose client then starts with a fresh budget. The store inspects eight counts at random
    /// places, or up to 64 while all of them have spent half of their limits or more, or have open holds. It drops the
    /// count that has spent the smallest share of its limit, and among equals the count that becomes idle soonest.
    /// Counts with open holds, which are those of requests that run, are dropped only if all inspected counts have
    /// some.
    ///
    /// The default, because a store that is too small should not refuse new clients.
    #[default]
    EvictLeastSpent,
    /// Counts new keys in a bucket that they share, one for each policy, under the policy's own limit, while the store
    /// is full. No live count is dropped.
    ///
    /// Once there is room, new keys get their own counts again. Such a count starts with what the shared bucket has
    /// spent, as long as that is live, so that no key spends its limit twice. A [reset](crate::Limiter::reset) does not
    /// affect the shared bucket. There are 1 024 shared buckets; under further policies, checks of new keys are denied.
    ///
    /// Under both `ShareOneKey` and `Deny`, a key whose denials are not counted yet is not
    /// [banned](crate::Policy::ban_after) while the store is full, and denials by the shared bucket ban no key.
    ShareOneKey,
}

impl WhenFull {
    const DENY: u8 = Self::Deny as u8;
    const SHARE_ONE_KEY: u8 = Self::ShareOneKey as u8;

    /// The inverse of `self as u8`.
    pub(super) fn from_u8(number: u8) -> Self {
        match number {
            Self::DENY => Self::Deny,
            Self::SHARE_ONE_KEY => Self::ShareOneKey,
            _ => Self::EvictLeastSpent,
        }
    }
}
