//! The dispatcher of a queue, which asks the store for the head; and the pauses that a fleet shares.
//!
//! It is a task of its own where anybody waits, because the future of the head may not be polled for a while, or may be
//! dropped, and the others would wait for it. A caller that is alone polls the dispatcher itself until then.
//!
//! A pause is a token bucket of microseconds beside the count of the key. Spending the whole bucket pauses every
//! process for the time in which it fills again. Each check of a process that shares pauses takes one microsecond from
//! the bucket, in the same atomic check as its cost, so a pause needs no further call.

use std::future::{Future, poll_fn};
use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::limiter::acquire::queue::{Group, Step};
use crate::limiter::acquire::seat::{InOutage, QueueId};
use crate::limiter::acquire::waiter::{Delivery, Reply};
use crate::limiter::acquire::{Acquire, forecast::after};
use crate::limiter::{core::Core, handle::Limiter};
use crate::{
    calls::Purpose, check::Check, clock::micros, decision::Decision, key::Key, policy::Policy, runtime::precise_sleep,
};

/// A dispatcher at work. If it ends early, because its runtime shuts down or an observer panics, the waiters join
/// again and start another dispatcher.
struct Dispatcher {
    core: Arc<Core>,
    id: QueueId,
    /// See [`Queues::take_over`](super::queues::Queues::take_over).
    number: u64,
    /// The group whose check is on its way.
    in_flight: Option<Group>,
    is_done: bool,
}

/// The work of a dispatcher of a queue.
pub(super) fn dispatch(core: &Arc<Core>, id: QueueId, number: u64) -> impl Future<Output = ()> + Send + use<> {
    Dispatcher { core: Arc::clone(core), id, number, in_flight: None, is_done: false }.run()
}

impl Dispatcher {
    async fn run(mut self) {
        loop {
            let (step, changed) = self.core.queues.step(&self.id, self.number);
            match step {
                Step::Done => {
                    self.is_done = true;
                    return;
                }
                Step::Leave(seat) => {
                    seat.leave();
                    tokio::task::yield_now().await;
                }
                Step::Sleep { until, is_precise } => {
                    let mut changed = pin!(changed.notified());
                    let mut due = pin!(async {
                        match is_precise {
                            true => precise_sleep::sleep_until(until).await,
                            false => tokio::time::sleep_until(until).await,
                        }
                    });
                    poll_fn(|cx| match changed.as_mut().poll(cx) {
                        Poll::Ready(()) => Poll::Ready(()),
                        Poll::Pending => due.as_mut().poll(cx),
                    })
                    .await;
                }
                Step::Ask(group) => {
                    self.ask(group).await;
                    // The store may have told of a pause of the fleet.
                    self.core.warn_of_full_pauses();
                    // A store that answers at once must not keep the thread from other tasks. Without waiters the task
                    // ends first, because its runtime may not run again soon.
                    if self.core.queues.has_waiters(&self.id) {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// Charges for a group, and replies to its waiters.
    async fn ask(&mut self, group: Group) {
        let Some((_, head)) = group.waiters.first() else { return };
        let key = self.id.key.clone();
        let check = match head.holds {
            true => Check::hold(key, &head.policy, group.units),
            false => Check::new(key, &head.policy, group.units),
        };
        let check = group.further.add_to(check, &self.id.key);
        let check = if head.shares_pauses { heed(check, &self.id.key, &head.policy) } else { check };
        let holds = head.holds;
        self.in_flight = Some(group);
        let sent = Instant::now();
        let Delivery { outcome, hold, charged: answered } = self.answer(check, holds).await;
        // The store judges within its deadline, also if a caller who polls this comes back long after that.
        let charged = answered.min(after(sent, self.core.calls.store.deadline()));
        let Some(mut group) = self.in_flight.take() else { return };
        if let Some((_, head)) = group.waiters.first_mut() {
            head.hold = hold;
        }
        let decision = outcome.as_ref().ok().filter(|decision| decision.is_allowed()).cloned();
        let left = deliver(self.core.queues.finish(&self.id, self.number, group, outcome, sent), charged);
        if let Some(decision) = decision {
            hand_on(&self.core, &self.id, left, &decision, charged);
        }
    }

    async fn answer(&self, check: Check, holds: bool) -> Delivery {
        let purpose = self.id.in_outage.purpose();
        match (holds, self.id.in_outage) {
            (true, _) => Delivery::of_held(self.core.ask_for_hold(check, purpose).await),
            (false, InOutage::Fail { .. }) => Delivery::of(self.core.ask_unreported(check, purpose).await),
            (false, _) => Delivery::of(self.core.ask(check, purpose).await),
        }
    }
}

/// For how long the units of callers that are gone go to the next waiters. Units of callers that have not been polled
/// for a while may be many, and would admit the next waiters all at once.
const JUST_CHARGED: Duration = Duration::from_millis(50);

/// Gives units that were charged for callers that are gone to the next waiters, unless that was long ago.
pub(super) fn hand_on(core: &Core, id: &QueueId, mut units: u64, decision: &Decision, charged: Instant) {
    if charged.elapsed() > JUST_CHARGED {
        return;
    }
    while units > 0 {
        let heirs = core.queues.inherit(id, &mut units, decision);
        if heirs.is_empty() {
            return;
        }
        units = units.saturating_add(deliver(heirs, charged));
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let message = "the task that sent the check has ended";
        let error = Error::new(ErrorKind::Unavailable, message).charge_unknown();
        if let Some(group) = self.in_flight.take() {
            for (_, waiter) in group.waiters {
                Reply { waiter, outcome: Err(error.clone()) }.send(Instant::now());
            }
        }
        self.core.queues.disband(&self.id, self.number);
    }
}

/// Sends the replies, whose units were charged at `charged`. Returns those of waiters that are gone.
fn deliver(replies: Vec<Reply>, charged: Instant) -> u64 {
    replies.into_iter().map(|reply| reply.send(charged)).fold(0, u64::saturating_add)
}

/// The capacity of the bucket for checks: 1 000 µs, so that checks do not pause each other.
const ROOM_US: u64 = 1_000;

impl Limiter {
    /// Pauses the queue of `key` in this process: its waiters send no check for `time`.
    pub(crate) fn pause(&self, key: &Key, policy: &Policy, time: Duration) {
        self.core.queues.pause(key, policy, time);
        self.core.warn_of_full_pauses();
    }

    /// For how long `key` is still paused in this process, for callers that share pauses or not.
    pub(crate) fn paused(&self, key: &Key, policy: &Policy, shares: bool) -> Option<Duration> {
        self.core.queues.paused_for(key, policy, shares)
    }

    /// Pauses `key` in every process that [shares pauses](Acquire::share_pauses). A longer pause that holds already
    /// stays.
    pub(crate) async fn pause_fleet(&self, key: &Key, policy: &Policy, time: Duration) -> Result<(), Error> {
        begin(&self.core, key, policy, time).await
    }
}

impl<T> Acquire<T> {
    /// Sets whether this process heeds the [pauses of the fleet](Limiter::pause_fleet).
    pub(crate) fn share_pauses(mut self, share: bool) -> Self {
        self.shares_pauses = share;
        self
    }
}

/// Adds the charge that a pause denies.
pub(super) fn heed(check: Check, key: &Key, policy: &Policy) -> Check {
    check.and(key.clone(), &policy.pauses(ROOM_US), 1)
}

async fn begin(core: &Arc<Core>, key: &Key, policy: &Policy, time: Duration) -> Result<(), Error> {
    // The bucket lets checks pass when it has one unit, so the pause has to outlast the room for checks.
    let burst_us = micros(time).saturating_add(ROOM_US).min(Policy::MAX_LIMIT);
    let pauses = policy.pauses(burst_us);
    let mut cost = burst_us;
    while cost > 0 {
        let decision = core.ask(Check::new(key.clone(), &pauses, cost), Purpose::CHECK).await?;
        if decision.is_allowed() {
            break;
        }
        // Another pause holds. What it leaves in this bucket is the time by which this pause is longer. It shrinks with
        // every denial, because only other pauses take from it.
        cost = decision.available().unwrap_or(0).min(cost - 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        sync::{Arc, Mutex},
    };

    use tokio::time::{Instant, advance};

    use super::*;
    use crate::{
        limiter::acquire::waiter::Further,
        observe::{Event, Observer, Warning},
        store::MemoryStore,
    };

    /// The largest number of paused keys.
    const MOST: u64 = 100_000;
    const HOUR: Duration = Duration::from_secs(3_600);

    #[derive(Clone, Default)]
    struct Warnings(Arc<Mutex<Vec<Warning>>>);

    impl Observer for Warnings {
        fn on_event(&self, event: &Event<'_>) {
            if let Some(warning) = event.warning() {
                self.0.lock().unwrap().push(warning.clone());
            }
        }
    }

    struct Hosts {
        limiter: Limiter,
        policy: Policy,
    }

    impl Hosts {
        fn new(limiter: Limiter) -> Self {
            Self { limiter, policy: Policy::per_second("per-host", 100).unwrap() }
        }

        fn pause(&self, hosts: Range<u64>, time: Duration) {
            hosts.for_each(|host| self.limiter.pause(&Key::from(host), &self.policy, time));
        }

        fn paused(&self, host: u64) -> Option<Duration> {
            self.limiter.paused(&Key::from(host), &self.policy, false)
        }

        /// The time of one pause. The fastest of ten rounds, because other work of the machine delays some of them.
        fn time_of_a_pause(&self, first: u64) -> Duration {
            let time = |round: u64| {
                let (from, started) = (first + 40 * round, std::time::Instant::now());
                self.pause(from..from + 40, HOUR);
                started.elapsed() / 40
            };
            (0..10).map(time).min().unwrap()
        }
    }

    #[tokio::test]
    async fn the_pause_of_a_fleet_is_found_behind_the_further_limits_of_a_check() {
        let (key, policy, mut further) = (Key::from("k"), Policy::per_minute("p", 10).unwrap(), Further::default());
        further.add(&Policy::per_minute("q", 10).unwrap(), 1);
        let (limiter, group) = (Limiter::new(MemoryStore::new()), Group { waiters: Vec::new(), units: 1, further });
        let answer = || {
            let check = group.further.add_to(Check::new(key.clone(), &policy, 1), &key);
            group.answer_on_pause(&limiter.try_check_all(heed(check, &key, &policy))).unwrap()
        };
        assert_eq!(answer(), Duration::ZERO);
        limiter.pause_fleet(&key, &policy, HOUR).await.unwrap();
        assert!(answer() > HOUR / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_takes_no_longer_when_a_hundred_thousand_hosts_are_paused() {
        let hosts = Hosts::new(Limiter::new(MemoryStore::new()).without_notices());
        hosts.pause(0..1_000, HOUR);
        let with_few = hosts.time_of_a_pause(1_000);
        hosts.pause(1_400..MOST + 11_000, HOUR);
        let with_many = hosts.time_of_a_pause(MOST + 11_000);
        assert!(with_many < with_few * 30, "{with_many:?} with many paused hosts, {with_few:?} with few");
    }

    #[tokio::test(start_paused = true)]
    async fn law_6_of_more_than_a_hundred_thousand_pauses_the_first_to_end_is_given_up_with_a_warning() {
        let warnings = Warnings::default();
        let hosts = Hosts::new(Limiter::new(MemoryStore::new()).with_observer(warnings.clone()).without_notices());
        hosts.pause(0..1, HOUR / 2);
        hosts.pause(1..MOST, HOUR);
        hosts.pause(0..MOST, HOUR / 4);
        assert_eq!((hosts.paused(0), &*warnings.0.lock().unwrap()), (Some(HOUR / 2), &vec![]));

        hosts.pause(MOST..MOST + 2, HOUR);
        assert_eq!(*warnings.0.lock().unwrap(), [Warning::pauses_full(100_000)], "once, for two pauses");
        assert_eq!((hosts.paused(0), hosts.paused(MOST)), (None, Some(HOUR)));

        advance(HOUR).await;
        assert_eq!(hosts.paused(MOST), None);
        hosts.pause(0..10, HOUR / 2);
        assert_eq!(hosts.paused(0), Some(HOUR / 2), "pauses that are over make room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_became_longer_holds_beyond_its_first_end() {
        let hosts = Hosts::new(Limiter::new(MemoryStore::new()).without_notices());
        [HOUR / 4, HOUR].into_iter().for_each(|time| hosts.pause(0..1, time));
        advance(HOUR / 2).await;
        hosts.pause(1..2, HOUR);
        assert_eq!(hosts.paused(0), Some(HOUR / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_was_given_up_still_holds_the_calls_back_that_wait() {
        let hosts = Hosts::new(Limiter::new(MemoryStore::new()).without_notices());
        hosts.pause(0..1, HOUR / 2);
        let started = Instant::now();
        let mut waiting = Box::pin(hosts.limiter.acquire(Key::from(0_u64), &hosts.policy, 1).within(HOUR));
        tokio::time::timeout(Duration::from_secs(1), &mut waiting).await.unwrap_err();
        hosts.pause(1..MOST + 1, HOUR);
        assert!(waiting.await.unwrap().is_allowed());
        assert!(started.elapsed() >= HOUR / 2, "{:?}", started.elapsed());
    }
}
