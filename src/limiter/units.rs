//! Units that no check has charged, and units that are given back.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::check::{Charge, Check};
use crate::limiter::{handle::Limiter, sharded::join};
use crate::{calls::Calls, error::Error, key::Key, policy::Policy, store::CountChange};

impl Limiter {
    /// Charges `units` to `key` under `policy`, whether or not they fit: for work that was done already, or as a
    /// penalty.
    ///
    /// Units beyond the limit stay charged: later checks wait until enough has left the window. A key that is banned is
    /// charged too. Under [shards](Policy::with_shards), each shard is charged its part. For several policies, call
    /// [`record_all`](Self::record_all).
    ///
    /// If the limiter has a [local fallback](Self::with_local_fallback) and the store is away, the units count in the
    /// share of this instance, and the store is charged later, as far as they fit. That is no error.
    ///
    /// # Errors
    ///
    /// An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if `units` is 0, and under a [concurrency
    /// limit](Policy::concurrent), whose units only a hold takes. An [`Error`] if the store does not answer within its
    /// deadline; [`Error::may_have_charged`] says whether the units may have been charged, or some of them.
    ///
    /// # Cancel safety
    ///
    /// Once the future has been polled, the units may be charged although the future is dropped. They are never sent
    /// twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let tokens = Policy::per_minute("tokens", 1_000)?;
    /// limiter.record("tenant:3", &tokens, 1_200).await?;
    /// assert!(!limiter.check("tenant:3", &tokens, 1).await?.is_allowed());
    /// assert_eq!(limiter.credit("tenant:3", &tokens, 300).await?, 300);
    /// assert_eq!(limiter.peek("tenant:3", &tokens).await?.available(), Some(100));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "penalty")]
    #[doc(alias = "charge")]
    pub async fn record(&self, key: impl Into<Key>, policy: &Policy, units: u64) -> Result<(), Error> {
        self.change_by_hand(key.into(), policy, CountChange::Record(units)).await.map(|_| ())
    }

    /// Gives up to `units` units back to `key` under `policy`: an order that did not happen. Returns how many were
    /// given back: never more than the key has spent, so that not more than the capacity becomes available. In no
    /// window are more units admitted than the limit and what was given back in it.
    ///
    /// Which units leave depends on the [algorithm](crate::Algorithm):
    ///
    /// | algorithm | units |
    /// | --- | --- |
    /// | sliding window log | the youngest in the window, as if these charges had not been made |
    /// | sliding window counter | those of the current window, then those of the previous one, which count for less the older they are |
    /// | fixed window | those of the current window |
    /// | token bucket | the bucket is full again earlier, and not before now |
    ///
    /// Units that are [held](Self::hold) are not given back: release the hold instead. A ban stays. Under a
    /// [lease](Policy::with_lease), this process gives its blocks back first. Under [shards](Policy::with_shards), each
    /// shard gives its part, and then what others lack. The [local fallback](Self::with_local_fallback) gives back what
    /// the store does. For several policies, call [`credit_all`](Self::credit_all).
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record).
    ///
    /// # Cancel safety
    ///
    /// As [`record`](Self::record).
    ///
    /// # Examples
    ///
    /// See [`record`](Self::record).
    #[doc(alias = "refund")]
    pub async fn credit(&self, key: impl Into<Key>, policy: &Policy, units: u64) -> Result<u64, Error> {
        self.change_by_hand(key.into(), policy, CountChange::Credit(units)).await
    }

    /// Charges the units of all charges of `check`, whether or not they fit. See [`record`](Self::record).
    ///
    /// Each charge is one change. On a `RedisStore`, changes of one slot usually share a call.
    ///
    /// # Errors
    ///
    /// As [`record`](Self::record), of any charge, after all have been tried.
    ///
    /// # Cancel safety
    ///
    /// As [`record`](Self::record).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Check, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let [minute, day] =
    ///     [Policy::per_minute("minute", 10)?, Policy::per_day("day", 100)?];
    /// let order = Check::new("alice", &minute, 4).and("alice", &day, 4);
    /// limiter.record_all(order.clone()).await?;
    /// assert_eq!(limiter.credit_all(order).await?, [4, 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn record_all(&self, check: Check) -> Result<(), Error> {
        self.change_all(check, CountChange::Record).await.map(drop)
    }

    /// Gives units back for all charges of `check`. Returns how many, in the order of the charges. See
    /// [`credit`](Self::credit).
    ///
    /// # Errors
    ///
    /// As [`record_all`](Self::record_all).
    ///
    /// # Cancel safety
    ///
    /// As [`record`](Self::record).
    ///
    /// # Examples
    ///
    /// See [`record_all`](Self::record_all).
    pub async fn credit_all(&self, check: Check) -> Result<Vec<u64>, Error> {
        self.change_all(check, CountChange::Credit).await
    }

    async fn change_all(&self, check: Check, change: fn(u64) -> CountChange) -> Result<Vec<u64>, Error> {
        self.core.validate(&check)?;
        check.charges().iter().try_for_each(|charge| change(charge.cost).validate(&charge.policy))?;
        join(check.charges().iter().map(|Charge { key, policy, cost, .. }| {
            boxed(async move { self.change_by_hand(key.clone(), policy, change(*cost)).await })
        }))
        .await
    }
}

/// A change on its way.
type Change<'a> = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'a>>;

fn boxed<'a>(change: impl Future<Output = Result<u64, Error>> + Send + 'a) -> Change<'a> {
    Box::pin(change)
}

/// Charges units. Each shard is charged its part.
///
/// What the store has certainly not charged is a debt of the local fallback, if there is one: of the whole policy, for
/// which checks and resets look.
pub(super) async fn record(calls: &Arc<Calls>, key: &Key, policy: &Policy, units: u64) -> Result<u64, Error> {
    let whole = &Charge::new(key.clone(), policy.clone(), units.min(Policy::MAX_LIMIT));
    let charged = join(parts(whole).into_iter().map(|part| {
        boxed(async move {
            let result = calls.change_count(&part.key, &part.policy, CountChange::Record(part.cost)).await;
            match result {
                Err(error) => calls.owe_recorded(&Charge { cost: part.cost, ..whole.clone() }, &error).ok_or(error),
                charged => charged,
            }
        })
    }));
    let charged: u64 = charged.await?.into_iter().sum();
    calls.mirror_recorded(whole);
    Ok(charged)
}

/// Gives units back. Each shard gives its part, and then what others lack.
pub(super) async fn credit(calls: &Arc<Calls>, key: &Key, policy: &Policy, units: u64) -> Result<u64, Error> {
    let whole = Charge::new(key.clone(), policy.clone(), units.min(Policy::MAX_LIMIT));
    let give =
        |part: Charge| async move { calls.change_count(&part.key, &part.policy, CountChange::Credit(part.cost)).await };
    let given = join(parts(&whole).into_iter().map(|part| boxed(give(part)))).await?;
    let mut credited: u64 = given.into_iter().sum();
    if policy.is_sharded() {
        for shard in whole.of_all_shards() {
            let cost = whole.cost - credited;
            if cost == 0 {
                break;
            }
            // Other shards may have given units back.
            credited += give(Charge { cost, ..shard }).await.map_err(Error::charge_unknown)?;
        }
    }
    calls.mirror_credit(&Charge { cost: credited, ..whole });
    Ok(credited)
}

/// The parts of a charge in the shards of its policy, those of 0 units left out; the charge itself without shards.
fn parts(whole: &Charge) -> Vec<Charge> {
    let shards = u64::from(whole.policy.shards());
    let part = |(number, shard): (u64, Charge)| Charge {
        cost: whole.cost / shards + u64::from(number < whole.cost % shards),
        ..shard
    };
    (0..).zip(whole.of_all_shards()).map(part).filter(|part| part.cost > 0).collect()
}
