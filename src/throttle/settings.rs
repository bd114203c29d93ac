//! The settings of a layer, and what its calls do with the limiter.

use std::{iter, sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::Semaphore, time::Instant};

use super::response::HeldCall;
use crate::error::{ConfigError, Error, FirstMistake};
use crate::limiter::{HoldAnswer, Limiter};
use crate::{decision::Decision, failure::FailurePolicy, key::Key, policy::Policy};

/// The most pauses of a layer that are on their way to the store at once. A pause beyond this number is obeyed in this
/// process alone, and the next response that asks for one is shared again.
const MOST_SHARES: usize = 64;

/// The settings that a layer shares with its services and their calls.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) limiter: Limiter,
    pub(super) policy: Policy,
    pub(super) further: Vec<FurtherLimit>,
    /// Whether a call holds until the body of its response has ended.
    pub(super) holds_until_end: bool,
    /// The longest wait of a call.
    pub(super) max_wait: Duration,
    pub(super) failure: FailurePolicy,
    pub(super) mistake: FirstMistake,
    /// Whether a pause applies to each process that has this setting. Bounds the pauses that are being shared.
    pub(super) shares: Option<Arc<Semaphore>>,
}

/// A further limit of the upstream.
#[derive(Clone, Debug)]
pub(super) struct FurtherLimit {
    pub(super) policy: Policy,
    /// The cost of each call; `None` if a closure computes it.
    pub(super) cost: Option<u64>,
}

/// The costs of a call under the limits of its layer.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    pub(super) first: u64,
    pub(super) further: Vec<u64>,
}

impl Settings {
    /// Refuses a call that can never be made.
    pub(super) fn check(&self, costs: &Costs) -> Result<(), ConfigError> {
        self.delaying(costs, false).try_for_each(|(policy, cost)| policy.check_cost(cost))
    }

    /// Whether a limit may keep a call of these costs back.
    pub(super) fn is_delayed(&self, costs: &Costs) -> bool {
        self.delaying(costs, false).next().is_some()
    }

    /// Whether a charge that is this old has left the window of a limit. What a call holds under the first policy is in
    /// no window.
    pub(super) fn is_over(&self, costs: &Costs, age: Duration, is_held: bool) -> bool {
        self.delaying(costs, is_held).any(|(policy, _)| age > policy.window_length())
    }

    /// The limits that can delay a call of these costs, without the first one if the call holds its units.
    fn delaying<'a>(&'a self, costs: &'a Costs, is_held: bool) -> impl Iterator<Item = (&'a Policy, u64)> {
        let charges = self.policies().zip(iter::once(&costs.first).chain(&costs.further).copied());
        charges.skip(usize::from(is_held)).filter(|(policy, cost)| policy.delays(*cost))
    }

    /// The costs of a call, of which closures have computed the `first` and those under some further limits.
    pub(super) fn costs(&self, first: u64, computed: Vec<u64>) -> Costs {
        let mut computed = computed.into_iter();
        // Each limit without a cost has a closure, unless the layer has a mistake and makes no call.
        let further = self.further.iter().map(|limit| limit.cost.or_else(|| computed.next()).unwrap_or_default());
        Costs { first, further: further.collect() }
    }

    pub(super) fn new(limiter: Limiter, policy: Policy) -> Self {
        Self {
            limiter,
            mistake: policy.mistake(),
            policy,
            further: Vec::new(),
            holds_until_end: false,
            max_wait: Duration::from_secs(10),
            failure: FailurePolicy::Closed,
            shares: None,
        }
    }

    /// All policies, the first one first.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        iter::once(&self.policy).chain(self.further.iter().map(|limit| &limit.policy))
    }

    /// Checks everything that can be checked without a call.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        self.limiter.validate()?;
        self.mistake.found()?;
        if self.failure == FailurePolicy::Local && !self.limiter.has_fallback() {
            return Err(ConfigError::local_without_fallback());
        }
        if self.policy.is_concurrent() && !self.holds_until_end {
            let name = self.policy.name();
            let message = format!(
                "policy {name:?} limits how many calls are under way at once, and nothing would give a slot back at \
                 the end of a response; call `ThrottleLayer::hold_until_end`"
            );
            return Err(ConfigError::new(message).about(name));
        }
        Ok(())
    }

    pub(super) fn share_pauses(&mut self) {
        self.shares = Some(Arc::new(Semaphore::new(MOST_SHARES)));
    }

    /// Waits until the costs of a call are charged to `key`, or held until its end, at most for `wait`. Also returns
    /// when that was.
    pub(super) async fn acquire(
        &self,
        key: &Key,
        costs: &Costs,
        wait: Duration,
    ) -> Result<(Decision, Option<HeldCall>, Instant), Error> {
        let (shares, is_local) = (self.shares.is_some(), self.failure == FailurePolicy::Local);
        let further = self.further.iter().map(|limit| &limit.policy).zip(costs.further.iter().copied());
        let cost = costs.first;
        if self.holds_until_end && self.policy.holds().is_some() {
            let acquire = self.limiter.acquire_hold(key, &self.policy, cost).share_pauses(shares);
            let acquire = further.fold(acquire, |acquire, (policy, cost)| acquire.and(policy, cost));
            let acquire = if is_local { acquire.fail_local() } else { acquire };
            return acquire.charged_within(wait).await.map(|(held, charged)| match held {
                HoldAnswer::Open(hold) => (hold.decision().clone(), Some(HeldCall::new(hold, cost)), charged),
                HoldAnswer::Denied(decision) => (decision, None, charged),
            });
        }
        let acquire = self.limiter.acquire(key, &self.policy, cost).share_pauses(shares);
        let acquire = further.fold(acquire, |acquire, (policy, cost)| acquire.and(policy, cost));
        let acquire = if is_local { acquire.fail_local() } else { acquire };
        acquire.charged_within(wait).await.map(|(decision, charged)| (decision, None, charged))
    }

    /// How long the upstream has asked not to be called for `key`; `None` if it may be called.
    pub(super) fn paused(&self, key: &Key) -> Option<Duration> {
        self.limiter.paused(key, &self.policy, self.shares.is_some())
    }

    /// Keeps calls for `key` back for `time`.
    pub(super) fn pause(&self, key: &Key, time: Duration) {
        self.limiter.pause(key, &self.policy, time);
        if let Some(shares) = &self.shares {
            self.pause_fleet(key, time, shares);
        }
    }

    /// Tells the other processes, in a task of its own, so that the response need not wait for the store.
    fn pause_fleet(&self, key: &Key, time: Duration, shares: &Arc<Semaphore>) {
        let (Ok(permit), Ok(runtime)) = (Arc::clone(shares).try_acquire_owned(), Handle::try_current()) else { return };
        let (limiter, policy, key) = (self.limiter.clone(), self.policy.clone(), key.clone());
        runtime.spawn(async move {
            // Without the store, each process learns of the pause from its own calls.
            drop(limiter.pause_fleet(&key, &policy, time).await);
            drop(permit);
        });
    }
}
