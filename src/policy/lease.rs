//! For keys that are checked very often: leases, which are blocks of units that a process spends by itself, and shards,
//! which are one budget in several counts, so that a cluster keeps it on several nodes.

use crate::policy::{holds::HoldSettings, limit::Policy, mistakes::MAX_SHARDS};

impl Policy {
    /// Lets each process spend blocks of at most `units` units by itself, for keys that are checked often. The
    /// [guide](crate::guide::leases) has figures.
    ///
    /// Once a key is checked often, the limiter takes a block of units as a [hold](Self::with_holds), decides checks
    /// from it in memory, and settles what was spent when the block is used up, while it takes the next block. A block
    /// lasts for 1/30 of the window, at most 2 s. Units of a block count as spent from the hold until a window after
    /// the settlement. So the limit is not passed while clocks go on, and nothing is estimated. A key that is checked
    /// fewer than 24 times in the time of a block is checked in the store as without a lease.
    ///
    /// # What changes
    ///
    /// * **Denials come from the store.** While blocks are open, other processes are denied units that a process holds
    ///   and has not spent: at most `units` for each block, and each process has at most two blocks of a key. Blocks
    ///   follow the demand and are at most a quarter of what is available, so they shrink as the limit nears, and the
    ///   last units are charged one by one. A block without demand is given back after half of the time of a block, but
    ///   not before 100 ms. Before a process is denied, it gives back what it has not spent itself. On a cluster, a
    ///   check that also [holds](crate::Limiter::hold_all) units is denied first, and the next one finds the units.
    /// * **Decisions** from a block have the source [`Lease`](crate::decision::Source::Lease).
    ///   [`available`](crate::Decision::available) is what the store had left when it gave the block, and the rest of
    ///   the block: what other processes have spent since is not in it.
    /// * **Observers** see each decision, and the end of each block as that of a hold
    ///   ([event](crate::observe::Event#names) `hold_end`).
    /// * **A process that is killed** loses its blocks: they are charged in full after four times the time of a block,
    ///   at least 2 s, or when the time-to-live of the policy's [holds](Self::with_holds) has passed if that is
    ///   shorter. [`Limiter::close`](crate::Limiter::close) gives them back.
    /// * **While the store is away**, an open block is spent, at most until its time-to-live has nearly passed. Then
    ///   the failure policy decides.
    /// * A check of several charges, such as that of a layer with several policies, a cost above the block, a
    ///   [peek](crate::Limiter::peek) and a [reset](crate::Limiter::reset) go to the store. A reset gives up this
    ///   process's blocks of the key.
    ///
    /// All instances need the same policy, or at least one with [holds](Self::with_holds): an instance whose policy has
    /// none does not see the blocks of others, and the instances together may admit more than the limit. So give the
    /// policy holds everywhere before the first instance gets a lease.
    ///
    /// The process measures the time-to-live on its monotonic clock, starting before it requests the hold. If that
    /// clock stands still while the machine is suspended, an expired block may be spent after it has left its window:
    /// at most two blocks of each suspended process.
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
    /// let per_tenant =
    ///     Policy::per_minute("per-tenant", 10_000_000)?.with_lease(20_000);
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
            return self.mistaken("a lease of 0 units spends nothing; use 1 or more, the largest block");
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

impl Policy {
    /// Divides the budget of each key into `shards` counts, 1 to 64, which a cluster keeps in slots of their own: for a
    /// key that is too hot for one node.
    ///
    /// Each shard has `limit / shards` units; the first `limit % shards` have one unit more. The burst of a token
    /// bucket is divided in the same way. So all shards together never admit more than the limit. Defaults to 1, no
    /// division, because shards help only on a cluster, and only if one key keeps a node busy: one node decides more
    /// than a hundred thousand checks of one key a second. On a single server, shards cost time and bring nothing.
    ///
    /// # The trade
    ///
    /// A check charges one shard. The checks of a limiter take the shards in turn. Up to 64 in a row ask one shard, so
    /// that they share a call, but no more than a thirty-second part of its capacity. If the shard denies, the check
    /// asks one other shard, chosen at random, within the same deadline. So a denial may come while other shards have
    /// units left:
    ///
    /// * A check of cost `c` is denied only if both shards had less than `c` units left. The check sees neither of the
    ///   other `shards - 2`, so up to `(shards - 2) / shards` of what is left may be out of its sight. With two shards,
    ///   a check sees both. The chance of such a denial grows near the limit, with the number of shards, and if a shard
    ///   has few units.
    /// * At Retry-After there is room in the shard that has denied the check, but the same check may ask other shards
    ///   then, and be denied again.
    /// * The denial of the first shard is final if that shard took more than half of the deadline, if a policy of the
    ///   check that has no shards denies it too, if a policy of the check
    ///   [counts denials](Self::with_denials_counted), because it would count both attempts, or if, on a cluster, the
    ///   check [holds](crate::Limiter::hold_all) units of another policy, because another node may just be releasing
    ///   them.
    /// * A [shadow](Self::with_shadow) policy asks another shard only if the check charges nothing otherwise.
    /// * A cost above [`capacity`](Self::capacity), the size of the smallest shard, can never pass. A fixed cost is a
    ///   [`ConfigError`](crate::ConfigError); a request with such a computed cost is answered with 400.
    ///
    /// Choose as few shards as the load needs, and a limit of at least a hundred units in each. A cluster places shards
    /// by their hash: with fewer than three for each master, a master may have far more than its part. A check that
    /// also charges other keys or other policies is in several slots of a cluster, and takes a round trip for each slot
    /// and one before.
    ///
    /// # What decisions say
    ///
    /// The policy of a decision, and the limit in response fields, are those of the whole policy.
    /// [`available`](crate::Decision::available), the units left in response fields, and all waits are those of the
    /// shard that admitted the check, or of the shard with the shorter wait if both denied it: at least so much is left
    /// in all. A client that stops when the field says `r=0` stops although other shards may have units. A
    /// [peek](crate::Limiter::peek) asks all shards, and reports the largest cost that fits into one of them, and when
    /// more fits at the latest. A [reset](crate::Limiter::reset) resets all shards. The
    /// [local fallback](crate::Limiter::with_local_fallback) judges by its share of the whole policy.
    ///
    /// # Changing the number
    ///
    /// The number is a part of each Redis key. Another number starts fresh counts, so for the length of one window a
    /// client may spend its limit once with each number. A changed limit applies at once, as without shards.
    ///
    /// # Mistakes
    ///
    /// It is a [mistake](Self#mistakes) if `shards` is 0, above 64, or above the limit or the burst, if the policy has
    /// a [ban](Self::ban_after) or [holds](Self::with_holds), or if the bucket of a shard takes longer than
    /// [`MAX_WINDOW`](Self::MAX_WINDOW) to fill.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let everybody = Policy::per_second("everybody", 50_000)?.with_shards(10);
    /// assert_eq!((everybody.limit(), everybody.capacity()), (50_000, 5_000));
    ///
    /// # let store = MemoryStore::new(); // a `RedisStore` on a cluster
    /// let limiter = Limiter::new(store);
    /// let decision = limiter.check("*", &everybody, 1).await?;
    /// assert!(decision.is_allowed());
    /// assert_eq!(decision.available(), Some(4_999), "in one shard");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_shards(self, shards: u32) -> Self {
        let most = u64::from(MAX_SHARDS);
        // The mistake of a blocked policy says what it is.
        let most = if self.is_blocked() { most } else { self.limit().min(most) };
        if !(1..=most).contains(&shards.into()) {
            let mistake = self.definition().wrong_shards(shards, most);
            return self.change(|d| d.mistake.add(mistake));
        }
        self.change(|d| d.shards = shards)
    }

    /// The number of shards; 1 unless [`with_shards`](Self::with_shards) sets another.
    pub fn shards(&self) -> u32 {
        self.definition().shards
    }

    /// Whether the policy has several shards.
    #[inline]
    pub(crate) fn is_sharded(&self) -> bool {
        !self.shard_policies().is_empty()
    }

    /// The same policy without shards, for counts of the whole budget.
    pub(crate) fn without_shards(&self) -> Self {
        if self.is_sharded() { self.clone().change(|d| d.shards = 1) } else { self.clone() }
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

#[cfg(test)]
mod shards_tests {
    use std::time::Duration;

    use super::*;
    use crate::{check::Charge, error::ConfigError, key::Key, policy::Algorithm};

    fn policy(limit: u64) -> Policy {
        Policy::per_minute("p", limit).unwrap()
    }

    fn bucket(limit: u64, burst: u64) -> Policy {
        policy(limit).with_algorithm(Algorithm::TokenBucket).with_burst(burst)
    }

    #[test]
    fn shards_divide_limit_and_burst_without_a_rest() {
        for (limit, burst) in [(64, 64), (100, 100), (65, 1_000), (127, 64), (Policy::MAX_LIMIT, Policy::MAX_LIMIT)] {
            for count in [2, 3, 7, 63, 64] {
                let policy = bucket(limit, burst).with_shards(count);
                let shards = policy.shard_policies();
                assert_eq!((policy.shards() as usize, shards.len()), (count as usize, count as usize));
                for (of, whole) in [(Policy::limit as fn(&Policy) -> u64, limit), (|p| p.burst().unwrap(), burst)] {
                    let parts: Vec<u64> = shards.iter().map(of).collect();
                    assert_eq!(parts.iter().sum::<u64>(), whole);
                    assert!(parts.is_sorted_by(|one, next| one >= next) && parts[0] - parts[parts.len() - 1] <= 1);
                }
                assert_eq!(policy.capacity(), shards.iter().map(Policy::capacity).min().unwrap());
                assert_eq!((policy.limit(), policy.burst()), (limit, Some(burst)));
            }
        }
        let policy = policy(7).with_resolution(Duration::from_secs(1)).with_shards(3);
        let limits: Vec<u64> = policy.shard_policies().iter().map(Policy::limit).collect();
        assert_eq!((limits, policy.capacity()), (vec![3, 2, 2], 2));
        assert!(policy.shard_policies().iter().all(|shard| shard.form() == policy.form()));
    }

    #[test]
    fn a_number_out_of_range_is_an_error_that_names_the_largest() {
        for (policy, shards, most) in [
            (policy(100), 0, 64),
            (policy(100), 65, 64),
            (policy(100), u32::MAX, 64),
            (policy(3), 4, 3),
            (bucket(100, 5), 6, 5),
            (bucket(5, 100), 6, 5),
        ] {
            let error = policy.with_shards(shards).validated().unwrap_err().to_string();
            let expected = format!("policy \"p\": {shards} shards are out of range; use 1 to {most}, ");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert_eq!(policy(3).with_shards(1), policy(3));
        assert_eq!(policy(9).with_shards(3).with_shards(1), policy(9));
    }

    #[test]
    fn the_order_of_settings_does_not_matter() {
        let both = |limit, burst, shards| {
            let first = policy(limit).with_algorithm(Algorithm::TokenBucket);
            [
                first.clone().with_burst(burst).with_shards(shards),
                first.with_shards(shards).with_burst(burst),
                policy(limit).with_shards(shards).with_algorithm(Algorithm::TokenBucket).with_burst(burst),
                policy(limit).with_burst(burst).with_shards(shards).with_algorithm(Algorithm::TokenBucket),
            ]
            .map(Policy::validated)
        };
        for (limit, burst, shards, is_ok) in [(9, 20, 9, true), (9, 3, 3, true), (9, 3, 4, false), (3, 9, 4, false)] {
            let [one, two, three, four] = both(limit, burst, shards);
            assert_eq!((one.is_ok(), [&one; 3]), (is_ok, [&two, &three, &four]));
        }
        let ban = Duration::from_secs(60);
        assert!(policy(9).with_shards(1).ban_after(1, ban).validated().is_ok());
        let counting = policy(9).with_denials_counted(true).with_shards(2);
        assert_eq!(counting, policy(9).with_shards(2).with_denials_counted(true));
        assert!(counting.shard_policies().iter().all(Policy::denials_counted));
    }

    /// The whole bucket takes 366 days to fill. Two of its three units a window are those of the first shard, so the
    /// second shard with half of the burst takes longer.
    #[test]
    fn a_shard_that_fills_too_slowly_is_an_error() {
        let half = Policy::new("p", 3, Policy::MAX_WINDOW / 2).unwrap().with_algorithm(Algorithm::TokenBucket);
        let message = "a burst of 6 takes more than 366 days to refill; use a smaller one";
        let error = ConfigError::of_policy("p", message);
        assert_eq!(half.clone().with_burst(6).with_shards(2).validated().unwrap_err(), error);
        assert_eq!(half.clone().with_shards(2).with_burst(6).validated().unwrap_err(), error);
        assert!(half.with_burst(4).with_shards(2).validated().is_ok());
    }

    #[test]
    fn no_other_policy_and_no_other_number_shares_a_count_with_a_shard() {
        let key = Key::from("k");
        let mut seen = Vec::new();
        for shards in [1, 2, 3, 64] {
            let policy = policy(64).with_shards(shards);
            let charge = Charge::new(key.clone(), policy, 1);
            for shard in charge.of_all_shards() {
                assert!(!shard.policy.is_sharded());
                assert!(
                    shards == 1 || Policy::per_minute(shard.policy.name(), 1).is_err(),
                    "no user can choose the name"
                );
                let id = (shard.key, shard.policy.name().to_owned());
                assert!(!seen.contains(&id));
                seen.push(id);
            }
        }
        assert_eq!(seen.len(), 1 + 2 + 3 + 64);
    }
}
