//! The queues of a limiter, one for each key and policy with waiters.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::{sync::Notify, time::Instant};

use crate::limiter::acquire::queue::{Group, Queue, Recalled, Step};
use crate::limiter::acquire::seat::{Dispatching, QueueId};
use crate::limiter::acquire::waiter::{Reply, Waiter};
use crate::limiter::acquire::{forecast::after, paused_keys::PausedKeys};
use crate::limiter::hold::OnChangedCount;
use crate::{decision::Decision, error::Error, key::Key, policy::Policy, runtime::random::RandomMap};

/// All queues of a limiter. Clones of the limiter share them.
#[derive(Debug)]
pub(in crate::limiter) struct Queues {
    table: Mutex<Table>,
    /// The largest number of waiters of one key.
    max_per_key: usize,
    /// The largest number of waiters in all.
    max_in_all: usize,
    /// Whether a caller has ever waited, or a key was paused. In most processes none has.
    is_used: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    queues: RandomMap<QueueId, Queue>,
    /// A queue without waiters is not kept for a pause. The pause is here, and a new queue begins with it.
    paused: PausedKeys,
    /// The number of waiters in all queues.
    waiters: usize,
    last_ticket: u64,
    /// The number of queues at which those that are over are looked for again.
    swept_at: usize,
}

/// The result of joining a queue.
pub(super) enum Joined {
    Waiting {
        ticket: u64,
        dispatcher: Dispatching,
        /// Whether the dispatcher runs on another runtime.
        is_elsewhere: bool,
    },
    Refused(Box<Reply>),
}

impl Queues {
    /// A waiter takes less than 1 KB, so the waiters of a limiter take less than 100 MB.
    pub(in crate::limiter) const MAX_PER_KEY: usize = 10_000;
    pub(in crate::limiter) const MAX_IN_ALL: usize = 100_000;

    /// The number of queues at which those without waiters are no longer kept for their forecasts.
    const MAX_IDLE: usize = 10_000;

    pub(in crate::limiter) fn new(max_per_key: usize, max_in_all: usize) -> Self {
        Self { table: Mutex::default(), max_per_key, max_in_all, is_used: AtomicBool::new(false) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic under the lock leaves at worst a waiter without a reply, and no queue without a dispatcher.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a waiter. One that has waited before keeps its ticket, and so its place.
    pub(super) fn join(&self, id: &QueueId, ticket: Option<u64>, waiter: Waiter) -> Joined {
        self.is_used.store(true, Ordering::Release);
        let now = Instant::now();
        let mut table = self.table();
        table.sweep(now);
        table.last_ticket += 1;
        let ticket = ticket.unwrap_or(table.last_ticket);
        let is_full = table.waiters >= self.max_in_all;
        let queue = table.open(id, now);
        if is_full || queue.len() >= self.max_per_key {
            return Joined::Refused(Box::new(queue.refuse(waiter, now)));
        }
        if let Err(reply) = queue.join(ticket, waiter, now) {
            return Joined::Refused(reply);
        }
        let (dispatcher, is_elsewhere) = (queue.dispatching(now), queue.is_dispatched_elsewhere());
        table.waiters += 1;
        Joined::Waiting { ticket, dispatcher, is_elsewhere }
    }

    /// Whether nobody waits for a key that is not paused, and there would be room to wait.
    pub(super) fn is_quiet(&self, id: &QueueId) -> bool {
        if !self.is_used.load(Ordering::Acquire) {
            return true;
        }
        let (now, table) = (Instant::now(), self.table());
        let is_busy = |queue: &Queue| !queue.is_idle() || queue.paused_until(false, now).is_some();
        table.waiters < self.max_in_all
            && !table.queues.get(id).is_some_and(is_busy)
            && table.paused.pause(&id.pause()).end(false, now).is_none()
    }

    /// Remembers a denial of a caller that is about to join the queue.
    pub(super) fn learn(&self, id: &QueueId, decision: &Decision) {
        let (now, mut table) = (Instant::now(), self.table());
        table.open(id, now).learn(decision, now);
    }

    /// What the store has said of the cost of a request that the queue has refused.
    pub(super) fn recall(&self, id: &QueueId, cost: u64) -> Recalled {
        let (now, mut table) = (Instant::now(), self.table());
        table.open(id, now).peeks.recall(&id.policy, cost, now)
    }

    /// Remembers what the store has said of a cost, to the question of this number.
    pub(super) fn remember(&self, id: &QueueId, asked: u64, cost: u64, denial: Option<Decision>) {
        let (now, mut table) = (Instant::now(), self.table());
        table.open(id, now).peeks.remember(asked, &id.policy, cost, denial, now);
    }

    /// Forgets what is known about a count, because a caller was charged who has not joined the queue.
    pub(super) fn charged_beside(&self, id: &QueueId) {
        if self.is_used.load(Ordering::Acquire) {
            self.with(id, Queue::forget);
        }
    }

    /// Removes a waiter that has gone away.
    pub(super) fn leave(&self, id: &QueueId, ticket: u64) {
        let left = self.with(id, |queue| queue.remove(ticket));
        drop(left);
    }

    /// Removes a waiter whose time is over. `None` if a check that charges for it is on its way.
    pub(super) fn give_up(&self, id: &QueueId, ticket: u64) -> Option<Reply> {
        self.with(id, |queue| queue.give_up(ticket, Instant::now())).flatten()
    }

    /// Removes a waiter whose time is over, also if it may still pass. `None` if a check that charges for it is on its
    /// way.
    pub(super) fn expire(&self, id: &QueueId, ticket: u64) -> Option<Reply> {
        self.with(id, |queue| queue.expire(ticket, Instant::now())).flatten()
    }

    /// The number of a dispatcher that the caller has to start, because the runtime of the present one does not run.
    pub(super) fn take_over(&self, id: &QueueId, time: Duration) -> Option<u64> {
        self.with(id, |queue| queue.take_over(Instant::now(), time)).flatten()
    }

    /// What the dispatcher does next, and what wakes it earlier. Replies to waiters whose time is over.
    pub(super) fn step(&self, id: &QueueId, dispatcher: u64) -> (Step, Arc<Notify>) {
        let step = self.with(id, |queue| {
            let (step, late) = queue.step(dispatcher, Instant::now());
            // A caller that waits may not be polled in time.
            let seat = if let Step::Sleep { .. } = step { queue.take_seat() } else { None };
            (seat.map_or(step, Step::Leave), late, Arc::clone(&queue.changed))
        });
        let (step, late, changed) = step.unwrap_or_else(|| (Step::Done, Vec::new(), Arc::default()));
        for reply in late {
            reply.send(Instant::now());
        }
        (step, changed)
    }

    pub(super) fn has_waiters(&self, id: &QueueId) -> bool {
        self.table().queues.get(id).is_some_and(|queue| queue.len() > 0)
    }

    /// Ends a check of a group.
    pub(super) fn finish(
        &self,
        id: &QueueId,
        dispatcher: u64,
        group: Group,
        result: Result<Decision, Error>,
        sent: Instant,
    ) -> Vec<Reply> {
        let (now, mut table) = (Instant::now(), self.table());
        if group.shares_pauses() {
            table.learn_pause(id, group.answer_on_pause(&result), sent, now);
        }
        // If another dispatcher has served the rest of the queue meanwhile, the queue may be gone.
        table.open(id, now);
        table.with(id, |queue| queue.finish(dispatcher, group, result, sent, now)).unwrap_or_default()
    }

    /// Waiters to whom units go that were charged for waiters that are gone.
    pub(super) fn inherit(&self, id: &QueueId, units: &mut u64, decision: &Decision) -> Vec<Reply> {
        self.with(id, |queue| queue.inherit(units, decision)).unwrap_or_default()
    }

    /// Makes all waiters of a queue join again, because its dispatcher has ended.
    pub(super) fn disband(&self, id: &QueueId, dispatcher: u64) {
        let waiters = self.with(id, |queue| queue.disband(dispatcher));
        // Dropped without the lock, because this wakes them.
        drop(waiters);
    }

    /// Pauses the queues of a key: no check is sent for `time` from now.
    pub(in crate::limiter) fn pause(&self, key: &Key, policy: &Policy, time: Duration) {
        self.is_used.store(true, Ordering::Release);
        let now = Instant::now();
        let end = after(now, time);
        let mut table = self.table();
        table.paused.change(QueueId::of(key, policy), now, |pause| pause.extend(end));
        let mut replies = Vec::new();
        for id in QueueId::all(key, policy) {
            replies.extend(table.with(&id, |queue| queue.pause(end, now)).unwrap_or_default());
        }
        drop(table);
        for reply in replies {
            reply.send(now);
        }
    }

    /// How long a key is still paused, for callers that share pauses or not.
    pub(in crate::limiter) fn paused_for(&self, key: &Key, policy: &Policy, shares: bool) -> Option<Duration> {
        let (id, now, table) = (QueueId::of(key, policy), Instant::now(), self.table());
        let of_queue = table.queues.get(&id).and_then(|queue| queue.paused_until(shares, now));
        table.paused.pause(&id).end(shares, now).max(of_queue).map(|end| end - now)
    }

    /// The largest number of paused keys, once after pauses were given up because of it.
    pub(in crate::limiter) fn claim_pause_warning(&self) -> Option<usize> {
        self.table().paused.claim_warning()
    }

    /// Ends the pause of a key, because the key was reset. Returns whether it was paused.
    pub(in crate::limiter) fn end_pause(&self, key: &Key, policy: &Policy) -> bool {
        let is_paused = self.paused_for(key, policy, true).is_some();
        let (now, mut table) = (Instant::now(), self.table());
        table.paused.remove(&QueueId::of(key, policy));
        for id in QueueId::all(key, policy) {
            table.with(&id, |queue| queue.end_pause(now));
        }
        is_paused
    }

    /// Forgets what is known about the count of a key, because the key was changed by hand.
    pub(in crate::limiter) fn forget(&self, key: &Key, policy: &Policy) {
        for id in QueueId::all(key, policy) {
            self.with(&id, Queue::forget);
        }
    }

    /// New queues with the same bounds.
    pub(in crate::limiter) fn anew(&self) -> Self {
        Self::new(self.max_per_key, self.max_in_all)
    }

    fn with<T>(&self, id: &QueueId, work: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        self.table().with(id, work)
    }
}

impl OnChangedCount for Queues {
    fn hold_ended(&self, key: &Key, policy: &Policy) {
        if self.is_used.load(Ordering::Acquire) {
            for id in QueueId::all(key, policy) {
                self.with(&id, Queue::hold_ended);
            }
        }
    }

    fn charged_late(&self, key: &Key, policy: &Policy) {
        self.forget(key, policy);
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self::new(Self::MAX_PER_KEY, Self::MAX_IN_ALL)
    }
}

impl Table {
    /// The queue of a key. A new one begins with the pause of the key.
    fn open(&mut self, id: &QueueId, now: Instant) -> &mut Queue {
        let queue = self.queues.entry(id.clone()).or_default();
        if queue.is_over(now) {
            queue.begin_anew(self.paused.pause(&id.pause()));
        }
        queue
    }

    /// Remembers what the store has answered to a check of callers that share pauses, sent at `sent`.
    fn learn_pause(&mut self, id: &QueueId, answer: Option<Duration>, sent: Instant, now: Instant) {
        let mut pause = self.paused.pause(&id.pause());
        pause.learn(answer, sent);
        self.paused.change(id.pause(), now, |kept| *kept = pause);
        for id in QueueId::all(&id.key, &id.policy) {
            self.with(&id, |queue| queue.follow(pause));
        }
    }

    /// Calls `work` with a queue, and counts the waiters that it adds or removes. `None` without such a queue.
    fn with<T>(&mut self, id: &QueueId, work: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let queue = self.queues.get_mut(id)?;
        let before = queue.len();
        let result = work(queue);
        let now = Instant::now();
        self.waiters = (self.waiters + queue.len()).saturating_sub(before);
        if queue.is_idle() && (queue.is_over(now) || self.queues.len() > Queues::MAX_IDLE) {
            self.queues.remove(id);
        }
        Some(result)
    }

    /// Removes queues that have nothing to remember, whenever the number of queues has doubled: a caller that opens a
    /// queue pays for at most two others.
    fn sweep(&mut self, now: Instant) {
        const AT_LEAST: usize = 64;
        if self.queues.len() >= self.swept_at.max(AT_LEAST) {
            self.queues.retain(|_, queue| !queue.is_over(now));
            self.swept_at = self.queues.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{Limiter, MemoryStore, limiter::acquire::waiter::tests::waiter};

    #[tokio::test(start_paused = true)]
    async fn denials_of_many_keys_are_known_for_a_second_and_leave_no_memory() {
        let (queues, policy) = (Queues::default(), Policy::per_minute("p", 1).unwrap());
        let limiter = Limiter::new(MemoryStore::new());
        let [_, denied] = [(); 2].map(|()| limiter.try_check("k", &policy, 1).unwrap());
        for round in 0..3_u64 {
            let keys = 1_000 * round..1_000 * (round + 1);
            let ids: Vec<_> = keys.map(|key| QueueId::of(&Key::from(key), &policy)).collect();
            ids.iter().for_each(|id| queues.learn(id, &denied));
            for id in &ids {
                let joined = queues.join(id, None, waiter(&policy, 1, Instant::now() + Duration::from_secs(1)));
                assert!(matches!(joined, Joined::Refused(_)));
            }
            assert_eq!(queues.table().queues.len(), 1_000);
            advance(Duration::from_secs(2)).await;
        }
    }
}
