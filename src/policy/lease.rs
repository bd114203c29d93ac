//! Leases: blocks of units that a process spends by itself.

use crate::policy::{holds::HoldSettings, limit::Policy};

impl Policy {
    /// Lets each process spend blocks of at most `units` units by itself, for a key that is checked many thousand times
    /// a second. The [guide](crate::guide::leases) has figures.
    ///
    /// Once a key is checked often, the limiter takes a block of units as a [hold](Self::with_holds), decides checks
    /// from it in memory, and settles what was spent every few milliseconds, while it takes the next block. Units of a
    /// block count as spent from the hold until a window after the settlement. So the limit is never passed, and
    /// nothing is estimated. A key that is checked a few times is checked in the store as without a lease.
    ///
    /// # What changes
    ///
    /// * **Denials come from the store.** While blocks are open, other processes are denied units that a process holds
    ///   and has not spent: at most `units` for each block, and each process has at most two blocks of a key. Blocks
    ///   follow the demand of the last milliseconds and are at most a quarter of what is available, so they shrink as
    ///   the limit nears, and the last units are charged one by one. A block without demand is given back after 100 ms.
    ///   Before a process is denied, it gives back what it has not spent itself.
    /// * **Decisions** from a block have the source [`Lease`](crate::decision::Source::Lease).
    ///   [`available`](crate::Decision::available) is what the store had left when it gave the block, and the rest of
    ///   the block: what other processes have spent since, a few milliseconds, is not in it.
    /// * **Observers** see each decision, and the end of each block as that of a hold
    ///   ([event](crate::observe::Event#names) `hold_end`).
    /// * **A process that is killed** loses its blocks: they are charged in full after two seconds, or when the
    ///   time-to-live of the policy's [holds](Self::with_holds) has passed if that is shorter.
    ///   [`Limiter::close`](crate::Limiter::close) gives them back.
    /// * **While the store is away**, an open block is spent until its time-to-live has nearly passed. Then the failure
    ///   policy decides.
    /// * A check of several charges, a cost above the block, a [peek](crate::Limiter::peek) and a
    ///   [reset](crate::Limiter::reset) go to the store. A reset gives up this process's blocks of the key.
    ///
    /// All instances need the same policy, or at least one with [holds](Self::with_holds): an instance whose policy has
    /// none does not see the blocks of others, and the instances together may admit more than the limit. So give the
    /// policy holds everywhere before the first instance gets a lease.
    ///
    /// The time-to-live is measured by the process's monotonic clock from before the hold was requested. A machine that
    /// is suspended while that clock stands still may spend an expired block after it has left its window: at most two
    /// blocks for each suspension.
    ///
    /// Needs a store with holds and a tokio runtime with timers; elsewhere every check goes to the store. Sets
    /// [`HoldSettings::new`] if the policy has no holds. A time-to-live below one second leaves no time to spend a
    /// block, so such a policy takes none.
    ///
    /// It is a [mistake](Self#mistakes) if `units` is 0 or above the policy's [capacity](Self::capacity), or if the
    /// policy has a ban or shards, counts denials, or has holds that are
    /// [released](crate::policy::HoldSettings::with_unsettled_released) when they expire.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let per_tenant = Policy::per_minute("per-tenant", 10_000_000)?.with_lease(20_000);
    ///
    /// # let store = MemoryStore::new(); // a `RedisStore`
    /// let limiter = Limiter::new(store);
    /// assert!(limiter.check("tenant:3", &per_tenant, 1).await?.is_allowed());
    ///
    /// limiter.close().await; // before the process ends
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_lease(self, units: u64) -> Self {
        if units == 0 {
            return self
                .mistaken("a lease of 0 units spends nothing; use 1 or more, what is spent in some milliseconds");
        }
        self.change(|d| {
            d.lease = Some(units);
            d.holds = d.holds.or(Some(HoldSettings::new()));
        })
    }

    /// The largest block that a process takes, set by [`with_lease`](Self::with_lease). `None` without leases.
    #[inline]
    pub fn lease(&self) -> Option<u64> {
        self.definition().lease
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::Algorithm;

    fn policy() -> Policy {
        Policy::per_minute("p", 100).unwrap()
    }

    #[test]
    fn a_block_is_at_least_one_unit_and_at_most_the_capacity() {
        let bucket = policy().with_algorithm(Algorithm::TokenBucket).with_burst(10);
        for (policy, units, most) in [(policy(), 101, 100), (bucket, 11, 10)] {
            let error = policy.with_lease(units).validated().unwrap_err().to_string();
            let expected = format!("policy \"p\": a lease of {units} units is out of range; use 1 to {most}, ");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = policy().with_lease(0).validated().unwrap_err().to_string();
        assert!(error.starts_with("policy \"p\": a lease of 0 units spends nothing; use 1 or more, "), "{error}");
        let leased = policy().with_lease(100);
        assert_eq!((leased.lease(), leased.holds()), (Some(100), Some(&HoldSettings::new())));
        assert_eq!(policy().lease(), None);
    }

    #[test]
    fn the_order_of_settings_does_not_matter() {
        let holds = HoldSettings::new().with_ttl(Duration::from_secs(5));
        let first = policy().with_holds(holds).with_lease(10);
        let last = policy().with_lease(10).with_holds(holds);
        assert_eq!((&first, first.lease(), first.holds()), (&last, Some(10), Some(&holds)));
    }
}
