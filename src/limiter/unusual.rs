//! Checks that do not charge all of their units or none: peeks at costs, and charges of as much as fits.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    calls::{CheckCall, Purpose},
    check::Check,
    decision::Decision,
    error::{ConfigError, Error},
    key::Key,
    limiter::{check_future::CheckFuture, core::Core, handle::Limiter, lease, sharded},
    policy::Policy,
    store::{Answer, Pending},
    verdict::Verdict,
};

impl Limiter {
    /// Looks up whether all charges of `check` would pass, and when. Charges nothing.
    ///
    /// The decision is that of [`check_all`](Self::check_all), with the wait for the costs of the check. Open
    /// [holds](Self::hold) and [bans](Policy::ban_after) count. It is never counted as a denial, and observers get no
    /// [decision](crate::observe::Event::Decision) of it. Other requests may spend the units before the next check. To
    /// look at one policy without a cost, call [`peek`](Self::peek).
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`]. An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the store has no
    /// [`peek`](crate::store::Store::peek).
    ///
    /// # Panics
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Check, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let tokens = Policy::per_minute("tokens", 1_000)?;
    /// assert!(limiter.check("alice", &tokens, 600).await?.is_allowed());
    ///
    /// // How long does a prompt of 500 tokens have to wait?
    /// let decision = limiter.peek_all(Check::new("alice", &tokens, 500)).await?;
    /// assert!(!decision.is_allowed());
    /// assert!(decision.retry_after() > Some(Duration::from_secs(59)));
    /// assert_eq!(decision.available(), Some(400));
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek_all(&self, check: Check) -> CheckFuture {
        let accepted = self.core.validate(&check);
        CheckFuture::unusual(Purpose::PEEK_AT_COSTS, Arc::clone(&self.core), check, accepted)
    }

    /// Charges as many of `units` to `key` under `policy` as fit, in one atomic step: all of them, fewer, or none.
    ///
    /// The cost of the decision's policy ([`PolicyDecision::cost`](crate::decision::PolicyDecision::cost)) is the
    /// number of units that were charged. If no unit fits, it is 0, and the decision is the denial of one unit: with
    /// its Retry-After, and counted towards a [ban](Policy::ban_after). Under a [shadow policy](Policy::with_shadow),
    /// the decision is allowed also then.
    ///
    /// Under a [lease](Policy::with_lease), this process gives its blocks back first, and asks the store. With
    /// [`fail_local`](CheckFuture::fail_local), the share of the instance decides while the store gives no verdict.
    ///
    /// # Errors
    ///
    /// As [`Limiter::check`]. An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if `units` is 0, under a
    /// policy with [shards](Policy::with_shards), under a [concurrency limit](Policy::concurrent), and if the store has
    /// no [`charge_up_to`](crate::store::Store::charge_up_to).
    ///
    /// # Panics
    ///
    /// As [`Limiter::check`].
    ///
    /// # Cancel safety
    ///
    /// As [`Limiter::check`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let emails = Policy::per_hour("emails", 100)?;
    /// assert!(limiter.check("alice", &emails, 70).await?.is_allowed());
    ///
    /// let mut waiting: Vec<u32> = (0..50).collect();
    /// let decision = limiter.check_up_to("alice", &emails, 50).await?;
    /// let sent: Vec<u32> = waiting.drain(..decision.policies()[0].cost as usize).collect();
    /// assert_eq!((sent.len(), waiting.len()), (30, 20));
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_up_to(&self, key: impl Into<Key>, policy: &Policy, units: u64) -> CheckFuture {
        let check = Check::new(key, policy, units);
        let accepted = self.core.validate(&check).and_then(|()| check.refuse_holds()).and_then(|()| match units {
            0 => Err(ConfigError::of_policy(policy.name(), "up to 0 units are none; ask for 1 or more")),
            _ if policy.is_sharded() => {
                let message = "its shards have units of their own, so no step charges as many as fit; charge a cost \
                               that fits one shard";
                Err(ConfigError::of_policy(policy.name(), message))
            }
            _ => Ok(()),
        });
        CheckFuture::unusual(Purpose::UP_TO, Arc::clone(&self.core), check, accepted)
    }
}

/// Asks for an unusual check. Nothing is sent before the first poll.
pub(super) fn ask(
    core: Arc<Core>,
    check: Check,
    purpose: Purpose,
) -> Pin<Box<dyn Future<Output = Result<Decision, Error>> + Send>> {
    match purpose.is_up_to() {
        true => Box::pin(up_to(core, check, purpose)),
        false => Box::pin(peek(core, check, purpose)),
    }
}

async fn peek(core: Arc<Core>, mut check: Check, purpose: Purpose) -> Result<Decision, Error> {
    let span = core.calls.start_span(&check);
    let beside = core.calls.held.check_beside(&check);
    let whole = beside.as_ref().unwrap_or(&check);
    let sent = if whole.is_sharded() { &sharded::all_shards(whole) } else { whole };
    let result = match core.calls.store.peek(sent) {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => CheckCall::new(pending).answer(&core.calls, sent, &check, purpose).await,
    };
    match result {
        Ok(verdict) => {
            core.calls.on_answer(&verdict);
            let mut verdict = if check.is_sharded() { sharded::merge_costs(&check, verdict) } else { verdict };
            lease::add_left(&core, &check, &mut verdict);
            Ok(Decision::new(&mut check, &verdict))
        }
        Err(error) => core.on_error(&check, error, purpose, span),
    }
}

async fn up_to(core: Arc<Core>, mut check: Check, purpose: Purpose) -> Result<Decision, Error> {
    let span = core.calls.start_span(&check);
    if let [charge] = check.charges()
        && charge.policy.lease().is_some()
    {
        let (key, policy) = (charge.key.clone(), charge.policy.clone());
        lease::give_back(&core, &key, &policy).await;
    }
    let charged = charge_up_to(&core, &check, purpose).await;
    match charged {
        Ok((verdict, units)) => {
            check.set_cost(units.max(1));
            let decision = core.on_verdict(&mut check, &verdict, purpose, span);
            // What the store has charged for a check that is denied here pays for what this instance owes.
            Ok(if units == 0 || !decision.is_allowed() { decision.without_cost() } else { decision })
        }
        Err(error) => core.on_error(&check, error, purpose, span),
    }
}

/// Asks the store, behind the breaker and within the deadline.
async fn charge_up_to(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Result<(Verdict, u64), Error> {
    let beside = core.calls.held.check_beside(check);
    let sent = beside.as_ref().unwrap_or(check);
    let Some(charge) = sent.charges().first() else { return Err(ConfigError::new("the check has no charge").into()) };
    match core.calls.store.charge_up_to(charge) {
        Answer::Ready(result) => result,
        Answer::Pending(pending) => {
            let units = Arc::new(AtomicU64::new(0));
            let charged = Arc::clone(&units);
            let pending: Pending<Verdict> = pending.map(move |(verdict, units)| {
                charged.store(units, Ordering::Relaxed);
                verdict
            });
            let verdict = CheckCall::new(pending).answer(&core.calls, sent, check, purpose).await?;
            Ok((verdict, units.load(Ordering::Relaxed)))
        }
    }
}
