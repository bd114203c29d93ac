//! Turns: when the head asks the store, and for whom; and waiters that cannot wait any longer, or for whom there is no
//! room.

use std::{ops::RangeInclusive, time::Duration};

use tokio::time::Instant;

use super::{Group, Queue, Step, interval, pace};
use crate::limiter::acquire::forecast::{self, after};
use crate::limiter::acquire::waiter::{Further, Reply, Waiter};
use crate::verdict::Source;

/// The intervals between admissions for which a millisecond counts. A longer interval hardly notices a millisecond, and
/// a shorter one needs a burst anyway.
const PRECISE_INTERVALS: RangeInclusive<Duration> = Duration::from_micros(500)..=Duration::from_millis(250);

/// By how much a check is sent later than computed if a denial would count against the caller.
const SAFELY_LATE: Duration = Duration::from_millis(1);

impl Queue {
    /// What the dispatcher does at `now`, and the replies to waiters whose time is over. A group that it returns is no
    /// longer in the queue.
    pub(in crate::limiter::acquire) fn step(&mut self, dispatcher: u64, now: Instant) -> (Step, Vec<Reply>) {
        if !self.is_served_by(dispatcher) {
            return (Step::Done, Vec::new());
        }
        let late = self.give_up_late(now);
        let step = self.next_step(now);
        self.dispatch.back_by = Some(match &step {
            Step::Sleep { until, .. } => *until,
            Step::Done | Step::Ask(_) | Step::Leave(_) => now,
        });
        (step, late)
    }

    fn next_step(&mut self, now: Instant) -> Step {
        self.unblock();
        let Some((&ticket, head)) = self.waiters.first_key_value() else {
            (self.dispatch.is_running, self.dispatch.seat) = (false, None);
            self.is_paced = self.paused_until(true, now).is_some();
            return Step::Done;
        };
        let at = match self.turn {
            Some((whose, at)) if whose == ticket => at,
            _ => {
                let certain = self.due(head, now);
                let interval = interval_of(head);
                let wait = certain.saturating_duration_since(now);
                self.is_aimed = false;
                let at = match self.rivals.delay(wait, interval) {
                    // Units that are there already are only delayed after an admission just before.
                    Some(delay) if wait.is_zero() => after(self.last_admission.unwrap_or(now), delay).max(certain),
                    Some(delay) => after(certain, delay),
                    None if wait.is_zero() => certain,
                    None => {
                        self.is_aimed = true;
                        self.aim.adjust(certain)
                    }
                };
                // A check that is early must not count as a rejection.
                let at = if head.counts_denials() { at.max(after(certain, SAFELY_LATE)) } else { at };
                // Nothing but its units delays a head beyond its time.
                at.min(head.deadline.max(certain))
            }
        };
        self.turn = Some((ticket, at));
        let at = self.asks_from(head).map_or(at, |from| at.max(from));
        if at <= now {
            return Step::Ask(self.take_group(now));
        }
        let is_precise = PRECISE_INTERVALS.contains(&interval_of(head));
        Step::Sleep { until: at, is_precise }
    }

    fn take_group(&mut self, now: Instant) -> Group {
        let mut group = Group { waiters: Vec::new(), units: 0, further: Further::default() };
        let since_last = self.last_admission.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        while let Some(entry) = self.waiters.first_entry() {
            let waiter = entry.get();
            if let Some((_, head)) = group.waiters.first() {
                let known = self.forecast.as_ref().filter(|forecast| forecast.is_of(&head.policy));
                let available = known.map_or(0, |forecast| self.rivals.share_of(forecast.available_at(now)));
                let most = if self.is_paced { available.min(paced_units(head, since_last)) } else { available };
                let further = group.further.plus(&waiter.further);
                let fits = group.units.saturating_add(waiter.cost) <= most && self.room.holds(&further);
                if !waiter.can_join(head) || !fits {
                    break;
                }
                group.further = further;
            } else {
                group.further = waiter.further.clone();
            }
            group.units = group.units.saturating_add(waiter.cost);
            self.cost -= waiter.units();
            group.waiters.push(entry.remove_entry());
        }
        self.turn = None;
        (self.is_asking, self.has_hold_ended) = (true, false);
        group
    }
}

/// The time in which what a head waits for is gained on average.
fn interval_of(head: &Waiter) -> Duration {
    let (policy, cost) = head.delayed_by();
    interval(policy, cost)
}

/// The units that the limits of a head gain on average in `time`, as far as admissions are spaced.
fn paced_units(head: &Waiter, time: Duration) -> u64 {
    u64::try_from(time.as_micros() / pace(head).as_micros().max(1)).unwrap_or(u64::MAX)
}

impl Queue {
    /// Removes a waiter whose time is over, unless it may still pass with the next check.
    pub(in crate::limiter::acquire) fn give_up(&mut self, ticket: u64, now: Instant) -> Option<Reply> {
        let ahead = self.waiters.range(..ticket).map(|(_, waiter)| waiter.units()).sum();
        if self.can_pass_now(self.waiters.get(&ticket)?, ahead, now) {
            self.has_late = true;
            return None;
        }
        self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now))
    }

    /// Removes a waiter whose time is over, whatever may come.
    pub(in crate::limiter::acquire) fn expire(&mut self, ticket: u64, now: Instant) -> Option<Reply> {
        let ahead = self.waiters.range(..ticket).map(|(_, waiter)| waiter.units()).sum();
        self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now))
    }

    /// Whether nothing is known that keeps `waiter` from passing now, after `ahead` units of others.
    fn can_pass_now(&self, waiter: &Waiter, ahead: u64, now: Instant) -> bool {
        let is_due = |time: Instant| time <= now;
        let head = self.waiters.values().next().unwrap_or(waiter);
        [head, waiter].into_iter().all(|one| self.asks_from(one).is_none_or(is_due))
            && self.turn.is_none_or(|(_, at)| is_due(at))
            && is_due(self.certain(waiter, ahead, now))
    }

    /// Takes out the waiters whose time is over and who cannot pass now.
    fn give_up_late(&mut self, now: Instant) -> Vec<Reply> {
        if !std::mem::take(&mut self.has_late) {
            return Vec::new();
        }
        self.turn =
            self.turn.filter(|(ticket, _)| self.waiters.first_key_value().is_some_and(|(head, _)| head == ticket));
        let is_late = |waiter: &Waiter| waiter.deadline <= now;
        let over =
            self.take_out(now, |queue, waiter, ahead| is_late(waiter) && !queue.can_pass_now(waiter, ahead, now));
        self.has_late = self.waiters.values().any(is_late);
        over
    }

    /// Takes out the waiters that are certain to wait for longer than they can.
    pub(super) fn deny_hopeless(&mut self, now: Instant) -> Vec<Reply> {
        // A head that cannot wait for its further limit is denied first, so that it delays no other caller.
        let blocked = self
            .blocked
            .filter(|blocked| self.waiters.get(&blocked.ticket).is_some_and(|head| self.is_hopeless(head, 0, now)));
        let head = blocked.and_then(|blocked| self.remove(blocked.ticket)).map(|head| self.time_out(head, 0, now));
        self.unblock();
        let others = self.take_out(now, |queue, waiter, ahead| queue.is_hopeless(waiter, ahead, now));
        head.into_iter().chain(others).collect()
    }

    /// Takes out the waiters for whom `is_over` returns true, given the units of those who stay ahead of them.
    fn take_out(&mut self, now: Instant, is_over: impl Fn(&Self, &Waiter, u64) -> bool) -> Vec<Reply> {
        let (mut ahead, mut over) = (0, Vec::new());
        for (ticket, waiter) in &self.waiters {
            if is_over(self, waiter, ahead) {
                over.push((*ticket, ahead));
            } else {
                ahead += waiter.units();
            }
        }
        let reply = |(ticket, ahead)| self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now));
        over.into_iter().filter_map(reply).collect()
    }

    /// The reply to a waiter whose time is over.
    pub(super) fn time_out(&self, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        match &self.failure {
            Some(error) => Reply { waiter, outcome: Err(error.clone()) },
            None => self.deny(waiter, ahead, now),
        }
    }

    pub(super) fn deny(&self, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        self.deny_from(Source::Queue, waiter, ahead, now)
    }

    /// The reply to a waiter for whom there is no room.
    pub(in crate::limiter::acquire) fn refuse(&self, waiter: Waiter, now: Instant) -> Reply {
        self.deny_from(Source::WaitersFull, waiter, self.cost, now)
    }

    fn deny_from(&self, source: Source, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        let until = self.certain(&waiter, ahead, now).max(self.blocked.map_or(now, |blocked| blocked.until));
        let wait = until.saturating_duration_since(now);
        let (policy, _) = waiter.delayed_by();
        let forecast = self.forecast.as_ref().filter(|forecast| forecast.is_of(policy));
        let outcome = Ok(forecast::by_queue(&waiter, source, forecast, self.has_answered, wait, now));
        Reply { waiter, outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Check, Limiter, ManualClock, MemoryStore, Policy,
        error::{Error, ErrorKind},
        limiter::acquire::{forecast::Forecast, waiter::tests::waiter},
        policy::{Algorithm, HoldSettings},
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// A queue that knows what a check of `cost` has left.
    fn queue(policy: &Policy, cost: u64, now: Instant) -> Queue {
        let decision = Limiter::new(MemoryStore::new()).try_check("k", policy, cost).unwrap();
        Queue { forecast: Forecast::of(&decision, now), ..Queue::default() }
    }

    #[test]
    fn callers_whose_time_is_over_stay_if_the_next_check_may_admit_them() {
        let (policy, now) = (Policy::per_minute("p", 10).unwrap(), Instant::now());
        let mut queue = queue(&policy, 9, now);
        let dispatcher = queue.replace_dispatcher(now);
        for (ticket, cost, time) in [(1, 1, Duration::ZERO), (2, 5, Duration::ZERO), (3, 6, SECOND)] {
            queue.insert(ticket, waiter(&policy, cost, now + time));
        }
        assert!(queue.give_up(1, now).is_none());
        let can_pass = |queue: &Queue| queue.can_pass_now(&queue.waiters[&1], 0, now);
        queue.not_before = Some(now + SECOND);
        assert!(!can_pass(&queue), "the store has failed");
        (queue.not_before, queue.turn) = (None, Some((1, now + SECOND)));
        assert!(!can_pass(&queue), "its turn comes later");
        // The turn of a head that has left.
        queue.turn = Some((9, now + SECOND));
        let (step, over) = queue.step(dispatcher, now);
        let costs: Vec<_> = over.iter().map(|reply| reply.waiter.cost).collect();
        assert_eq!((costs, queue.len()), (vec![5], 1));
        assert!(matches!(&step, Step::Ask(group) if group.units == 1), "{step:?}");
    }

    /// A caller that waits for both limits.
    fn head(first: &Policy, further: &Policy, now: Instant) -> Waiter {
        let mut head = waiter(first, 1, now + Duration::from_secs(1));
        head.further.add(further, 1);
        head
    }

    #[test]
    fn after_a_pause_the_limit_of_the_shortest_window_that_can_delay_the_head_spaces_admissions() {
        let [slow, fast] = [20, 50].map(|limit| Policy::per_second("rate", limit).unwrap());
        let (slots, day) = (Policy::concurrent("slots", 5).unwrap(), Policy::per_day("day", 10_000).unwrap());
        let shadow = Policy::per_minute("shadow", 1).unwrap().with_shadow(true);
        let cases =
            [(&slots, &fast, 20), (&shadow, &fast, 20), (&fast, &slow, 50), (&fast, &day, 20), (&day, &fast, 20)];
        for (first, further, millis) in cases {
            assert_eq!(pace(&head(first, further, Instant::now())), Duration::from_millis(millis));
        }
    }

    #[test]
    fn a_check_that_a_further_limit_denies_for_a_millisecond_at_most_was_sent_too_early() {
        let (policy, now) = (Policy::per_minute("p", 5).unwrap(), Instant::now());
        let further = Policy::new("further", 1, Duration::from_millis(1)).unwrap();
        let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
        let both = || Check::new("k", &policy, 1).and("k", &further, 1);
        assert!(limiter.try_check_all(both()).unwrap().is_allowed());
        let mut queue = Queue::default();
        let dispatcher = queue.replace_dispatcher(now);
        queue.insert(1, head(&policy, &further, now));
        let group = queue.take_group(now);
        queue.is_aimed = true;
        assert!(queue.finish(dispatcher, group, limiter.try_check_all(both()), now, now).is_empty());
        assert!(queue.aim.adjust(now) > now);
    }

    /// The end of a hold ends the forecast, and the store is well.
    #[tokio::test]
    async fn a_caller_without_a_place_learns_its_policy_if_the_store_has_answered_and_has_not_failed_since_then() {
        let policy = Policy::per_minute("p", 5).unwrap().with_holds(HoldSettings::new());
        let (limiter, now) = (Limiter::new(MemoryStore::new()), Instant::now());
        let _held = limiter.hold("k", &policy, 5).await.unwrap();
        let denied = limiter.try_check("k", &policy, 1).unwrap();
        let down = || Error::new(ErrorKind::Unavailable, "down");
        for (answers, policies) in [(vec![], 0), (vec![Ok(denied.clone())], 1), (vec![Ok(denied), Err(down())], 0)] {
            let (mut queue, until) = (Queue::default(), now + Duration::from_secs(60));
            let dispatcher = queue.replace_dispatcher(now);
            queue.insert(1, waiter(&policy, 1, until));
            for answer in answers {
                let group = queue.take_group(now);
                assert!(queue.finish(dispatcher, group, answer, now, now).is_empty());
                queue.hold_ended();
            }
            let refused = queue.refuse(waiter(&policy, 1, until), now).outcome.unwrap();
            assert_eq!(refused.policies().len(), policies);
        }
    }

    #[test]
    fn a_process_that_has_won_lets_its_rivals_go_first_for_the_time_in_which_its_units_come_back() {
        let bucket = Policy::per_second("p", 10).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(10);
        let last = Instant::now();
        let now = last + SECOND * 2 / 5;
        // From the time at which they are there, or from the last admission if they are there already.
        for (spent, expected_ms) in [(10, 1_000..=1_005), (5, 500..=511)] {
            let mut queue = queue(&bucket, spent, last);
            queue.last_admission = Some(last);
            queue.rivals.lost();
            queue.rivals.won(false);
            let dispatcher = queue.replace_dispatcher(now);
            queue.insert(1, waiter(&bucket, 5, now + 60 * SECOND));
            let Step::Sleep { until, .. } = queue.step(dispatcher, now).0 else { panic!("it asks: {spent}") };
            assert!(expected_ms.contains(&(until - last).as_millis()), "{spent}: {:?}", until - last);
        }
    }
}
