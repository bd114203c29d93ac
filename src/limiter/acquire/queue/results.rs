//! Results: what a check of a group means for its waiters and for those behind them.

use std::time::Duration;

use tokio::time::Instant;

use super::{Denial, Group, Queue, blocked::Blocked, pace};
use crate::decision::{Decision, PolicyDecision};
use crate::error::{Error, ErrorKind};
use crate::limiter::acquire::forecast::{self, Forecast, after};
use crate::limiter::acquire::waiter::{Reply, Room, Waiter};
use crate::verdict::Source;

/// The first time between two checks while the store fails, and the longest. Short, because the limiter's breaker
/// already protects the store.
const FIRST_BACKOFF: Duration = Duration::from_millis(10);
const LONGEST_BACKOFF: Duration = Duration::from_millis(250);
/// A denial with a shorter wait only means that the check arrived a little early.
const EARLY: Duration = Duration::from_millis(1);
/// The shortest time between two checks, for stores that answer with a wait of zero. It doubles with each denial in a
/// row, for stores whose clock stands still.
const SHORTEST_WAIT: Duration = Duration::from_micros(50);
const MOST_DOUBLINGS: u32 = 5;

impl Queue {
    /// Ends a check of a group that `dispatcher` sent at `sent`.
    pub(in crate::limiter::acquire) fn finish(
        &mut self,
        dispatcher: u64,
        group: Group,
        result: Result<Decision, Error>,
        sent: Instant,
        now: Instant,
    ) -> Vec<Reply> {
        if self.dispatch.number != dispatcher {
            // The group may come back to the head of a queue that another dispatcher serves.
            self.refresh();
        }
        self.is_asking = false;
        match result {
            Err(error) => self.failed(group, error, now),
            Ok(decision) if decision.is_allowed() => self.admitted(group, &decision, sent, now),
            Ok(decision) => self.denied(group, &decision, sent, now),
        }
    }

    fn admitted(&mut self, group: Group, decision: &Decision, sent: Instant, now: Instant) -> Vec<Reply> {
        self.answered();
        let has_rivals = self.has_rivals(decision, group.units);
        self.rivals.won(has_rivals);
        self.room = Room::after(decision, &group.further);
        let is_news = std::mem::take(&mut self.has_unjudged) || has_rivals;
        self.forecast = self.forecast_from(decision, sent, now);
        self.peeks.ask_again();
        self.denials = 0;
        if self.is_aimed {
            self.aim.hit();
        }
        self.last_admission = Some(sent);
        if let Some((_, head)) = group.waiters.first().filter(|_| self.is_paced) {
            self.not_before = Some(after(sent, pace(head)));
        }
        let reply = |(_, waiter): (u64, Waiter)| {
            let outcome = Ok(forecast::for_waiter(decision, waiter.cost));
            Reply { waiter, outcome }
        };
        let mut replies: Vec<Reply> = group.waiters.into_iter().map(reply).collect();
        // Without news, all waiters are still in time.
        if is_news {
            replies.extend(self.deny_hopeless(now));
        }
        replies
    }

    /// Waiters at the head for whom `units` were charged in place of waiters that are gone.
    pub(in crate::limiter::acquire) fn inherit(&mut self, units: &mut u64, decision: &Decision) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(entry) = self.waiters.first_entry() {
            let waiter = entry.get();
            let is_same = decision.policies().first().is_some_and(|standing| standing.policy == waiter.policy);
            if !is_same || waiter.holds || !waiter.further.is_empty() || waiter.cost > *units {
                break;
            }
            *units -= waiter.cost;
            self.cost -= waiter.units();
            let waiter = entry.remove();
            let outcome = Ok(forecast::for_waiter(decision, waiter.cost));
            replies.push(Reply { waiter, outcome });
        }
        if !replies.is_empty() {
            self.refresh();
        }
        replies
    }

    fn denied(&mut self, group: Group, decision: &Decision, sent: Instant, now: Instant) -> Vec<Reply> {
        self.answered();
        let [standing, others @ ..] = decision.policies() else {
            let wait = decision.retry_after().unwrap_or(FIRST_BACKOFF).max(SHORTEST_WAIT);
            self.not_before = Some(after(now, wait));
            return self.put_back(group, now);
        };
        // The charge after the further ones is the pause of the fleet, which has a wait of its own.
        let further = &others[..group.further.len().min(others.len())];
        let wait_of = |standing: &PolicyDecision| standing.retry_after.unwrap_or(FIRST_BACKOFF);
        self.room = Room::after(decision, &group.further);
        // What a group is denied may still fit its head, which is then asked alone.
        if let [(ticket, _)] = &group.waiters[..] {
            let denied = further.iter().filter(|standing| standing.violated);
            let waits = denied.map(|standing| (&standing.policy, wait_of(standing)));
            let counts = decision.policies().iter().any(|standing| standing.policy.counts_denials());
            // The store has judged before it replied, so a check that is sent this much later is never early.
            self.blocked = Blocked::by(*ticket, waits, if counts { now } else { sent }, counts);
        }
        let waits = [standing].into_iter().chain(further).filter(|standing| standing.violated).map(wait_of);
        if standing.violated && self.has_rivals(decision, group.units) {
            self.rivals.lost();
        } else if self.is_aimed && waits.max().is_some_and(|wait| wait <= EARLY) {
            self.aim.missed(now.saturating_duration_since(sent));
        }
        self.forecast = self.forecast_from(decision, sent, now);
        // Without a certain forecast, the denial itself says when to ask again.
        let is_certain = self.forecast.as_ref().is_some_and(Forecast::is_certain);
        let wait = if standing.violated { wait_of(standing) } else { Duration::ZERO };
        let shortest = SHORTEST_WAIT * 2_u32.pow(self.denials.min(MOST_DOUBLINGS));
        self.denials = self.denials.saturating_add(1);
        self.not_before = Some(after(now, shortest));
        // The wait for the units of several waiters says nothing about the head alone.
        if let ([(_, head)], false) = (&group.waiters[..], is_certain || self.has_hold_ended) {
            // The next check takes as long on its way as this one.
            let again = after(sent, wait.max(SHORTEST_WAIT));
            self.denial = Some(Denial { policy: head.policy.clone(), cost: head.cost, again });
        }
        if let ([(_, head)], None) = (&group.waiters[..], decision.retry_after())
            && standing.violated
        {
            // No wait helps.
            let outcome = Ok(forecast::for_waiter(decision, head.cost));
            return group.waiters.into_iter().map(|(_, waiter)| Reply { waiter, outcome: outcome.clone() }).collect();
        }
        let mut replies = self.put_back(group, now);
        replies.extend(self.deny_hopeless(now));
        replies
    }

    fn failed(&mut self, group: Group, error: Error, now: Instant) -> Vec<Reply> {
        // Nothing is known about the count, and a check whose fate is unknown is never sent again.
        (self.forecast, self.has_answered) = (None, false);
        let is_final =
            matches!(error.kind(), ErrorKind::BadKey | ErrorKind::InvalidCall | ErrorKind::StoreMisconfigured);
        let asks_again = group.waiters.iter().all(|(_, waiter)| waiter.asks_again);
        if error.may_have_charged() || is_final || !asks_again {
            let reply = |(_, waiter): (u64, Waiter)| Reply { waiter, outcome: Err(error.clone()) };
            return group.waiters.into_iter().map(reply).collect();
        }
        self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
        self.not_before = Some(after(now, self.backoff));
        self.failure = Some(error);
        self.put_back(group, now)
    }

    /// Remembers a denial for the callers that join next, if the queue has no dispatcher that knows more.
    pub(in crate::limiter::acquire) fn learn(&mut self, decision: &Decision, now: Instant) {
        if self.is_idle() {
            self.has_answered = true;
            self.forecast = self.forecast_from(decision, now, now);
        }
    }

    fn forecast_from(&mut self, decision: &Decision, sent: Instant, now: Instant) -> Option<Forecast> {
        let start = match decision.time_us() {
            // The store has judged before it replied, so a check that is sent this much later is never early.
            _ if decision.policies().iter().any(|standing| standing.policy.counts_denials()) => now,
            Some(time_us) if decision.source() == Source::Store => {
                self.aim.usual_start(sent, time_us, now.saturating_duration_since(sent))
            }
            _ => sent,
        };
        Forecast::of(decision, start)
    }

    fn answered(&mut self) {
        (self.failure, self.has_answered) = (None, true);
        self.backoff = Duration::ZERO;
        (self.not_before, self.blocked, self.denial) = (None, None, None);
    }

    /// Returns a group to the head of the queue, but for waiters whose time is over, and those that have left while the
    /// check was on its way.
    fn put_back(&mut self, group: Group, now: Instant) -> Vec<Reply> {
        let mut replies = Vec::new();
        for (ticket, waiter) in group.waiters {
            if waiter.reply.is_closed() {
                continue;
            }
            if waiter.deadline > now {
                self.insert(ticket, waiter);
            } else {
                replies.push(self.time_out(waiter, 0, now));
            }
        }
        replies
    }

    fn has_rivals(&self, decision: &Decision, cost: u64) -> bool {
        self.forecast.as_ref().is_some_and(|forecast| forecast.is_disproved_by(decision, cost))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{STUCK, Step};
    use super::*;
    use crate::{
        Check, Limiter, MemoryStore, Policy,
        limiter::acquire::waiter::{Further, tests::waiter},
        policy::HoldSettings,
    };

    const SECOND: Duration = Duration::from_secs(1);
    const DOWN: fn() -> Result<Decision, Error> = || Err(Error::new(ErrorKind::Unavailable, "down"));

    fn ask(queue: &mut Queue, dispatcher: u64, now: Instant) -> Group {
        let Step::Ask(group) = queue.step(dispatcher, now).0 else { panic!("nothing is asked") };
        group
    }

    fn sleeps_until(queue: &mut Queue, dispatcher: u64, now: Instant) -> Option<Instant> {
        let Step::Sleep { until, .. } = queue.step(dispatcher, now).0 else { return None };
        Some(until)
    }

    #[test]
    fn those_who_would_wait_for_too_long_are_denied_with_the_first_decision_that_tells() {
        let [policy, higher] = [5, 9].map(|limit| Policy::per_minute("p", limit).unwrap());
        let now = Instant::now();
        for (spent, is_known, is_asking, rival) in [(4, false, false, 0), (4, true, true, 0), (1, true, false, 3)] {
            let (limiter, mut queue) = (Limiter::new(MemoryStore::new()), Queue::default());
            let check = |cost| limiter.try_check("k", &policy, cost).unwrap();
            queue.forecast = Forecast::of(&check(spent), now).filter(|_| is_known);
            let dispatcher = queue.replace_dispatcher(now);
            let join = |queue: &mut Queue, ticket: u64, policy: &Policy| {
                queue.join(ticket, waiter(policy, 1, now + SECOND), now).is_ok()
            };
            assert!(join(&mut queue, 1, &policy) && (is_asking || join(&mut queue, 2, &policy)));
            let group = ask(&mut queue, dispatcher, now);
            assert!(!is_asking || join(&mut queue, 2, &policy));
            let _ = check(rival);
            let replies = queue.finish(dispatcher, group, Ok(check(1)), now, now);
            let allowed: Vec<_> = replies.iter().map(|reply| reply.outcome.as_ref().unwrap().is_allowed()).collect();
            assert_eq!(allowed, [true, false], "{spent} {is_known} {is_asking}");
            assert!(!join(&mut queue, 3, &policy) && join(&mut queue, 4, &higher), "a limit with other waits");
        }
    }

    #[test]
    fn a_dispatcher_that_was_replaced_brings_its_waiters_back_and_serves_them_if_its_successor_has_ended() {
        let (policy, now) = (Policy::per_minute("p", 5).unwrap(), Instant::now());
        for has_ended in [true, false] {
            let mut queue = Queue::default();
            let first = queue.replace_dispatcher(now);
            queue.insert(1, waiter(&policy, 1, now + SECOND));
            let group = ask(&mut queue, first, now);
            let second = queue.replace_dispatcher(now);
            assert!(!has_ended || matches!(queue.step(second, now).0, Step::Done));
            assert!(queue.finish(first, group, DOWN(), now, now).is_empty());
            let is_woken = tokio_test::task::spawn(queue.changed.notified()).poll().is_ready();
            let is_served = [first, second].map(|one| sleeps_until(&mut queue, one, now).is_some());
            assert_eq!((is_woken, is_served), (true, [has_ended, !has_ended]));
        }
    }

    #[test]
    fn a_dispatcher_is_replaced_if_somebody_waits_for_it_and_it_is_late() {
        let (policy, now, deadline) = (Policy::per_minute("p", 5).unwrap(), Instant::now(), SECOND / 2);
        let (in_time, late) = (now + deadline + STUCK, now + deadline + STUCK + Duration::from_micros(1));
        let mut queue = Queue::default();
        queue.replace_dispatcher(now);
        assert_eq!(queue.take_over(late, deadline), None, "nobody waits");
        queue.insert(1, waiter(&policy, 1, now + SECOND));
        let is_replaced = [in_time, late, late + deadline].map(|at| queue.take_over(at, deadline).is_some());
        assert_eq!(is_replaced, [false, true, false]);
    }

    #[tokio::test]
    async fn a_caller_that_open_holds_delay_asks_at_its_retry_after_or_when_a_hold_ends_and_not_during_an_outage() {
        let policy = Policy::per_minute("p", 5).unwrap().with_holds(HoldSettings::new());
        let (limiter, mut queue, now) = (Limiter::new(MemoryStore::new()), Queue::default(), Instant::now());
        let _held = limiter.hold("k", &policy, 5).await.unwrap();
        let denied = limiter.try_check("k", &policy, 1).unwrap();
        let (wait, dispatcher) = (denied.retry_after().unwrap(), queue.replace_dispatcher(now));
        queue.insert(1, waiter(&policy, 1, now + 60 * SECOND));
        let group = ask(&mut queue, dispatcher, now);
        assert!(queue.finish(dispatcher, group, Ok(denied), now, now).is_empty());
        assert_eq!(sleeps_until(&mut queue, dispatcher, now), Some(now + wait));
        queue.hold_ended();
        let group = ask(&mut queue, dispatcher, now);
        assert!(queue.finish(dispatcher, group, DOWN(), now, now).is_empty());
        queue.hold_ended();
        assert_eq!(sleeps_until(&mut queue, dispatcher, now), Some(now + FIRST_BACKOFF));
    }

    #[test]
    fn waits_count_from_when_a_check_is_usually_sent_and_from_its_answer_if_denials_count() {
        let plain = Policy::per_minute("p", 5).unwrap();
        let counting = plain.clone().with_denials_counted(true);
        let (first, way) = (Instant::now(), SECOND / 10);
        let cases = [(&plain, Source::Store, 20), (&plain, Source::DenyCache, 0), (&counting, Source::Store, 100)];
        for (policy, source, late_ms) in cases {
            let (limiter, mut queue) = (Limiter::new(MemoryStore::new()), Queue::default());
            let standing = limiter.try_check("k", policy, 1).unwrap().policies()[0].clone();
            // The second check was held up for 20 ms on its way.
            let starts = [(first, 1_000_000), (first + SECOND, 2_020_000)].map(|(sent, time_us)| {
                let decision = Decision::on_waiter(true, source, time_us, Some(standing.clone()));
                queue.forecast_from(&decision, sent, sent + way).unwrap().sent
            });
            assert_eq!(starts[1] - (first + SECOND), Duration::from_millis(late_ms), "{policy:?} {source:?}");
        }
        let both = Check::new("k", &Policy::per_day("q", 5).unwrap(), 1).and("k", &counting, 1);
        let decision = Limiter::new(MemoryStore::new()).try_check_all(both).unwrap();
        assert_eq!(Queue::default().forecast_from(&decision, first, first + SECOND).unwrap().sent, first + SECOND);
    }

    #[test]
    fn a_store_that_is_away_is_asked_in_pauses_that_double_up_to_a_bound_and_no_longer_than_the_caller_waits() {
        let (policy, start) = (Policy::per_minute("p", 5).unwrap(), Instant::now());
        let (mut queue, mut now) = (Queue::default(), start);
        let dispatcher = queue.replace_dispatcher(now);
        queue.insert(1, waiter(&policy, 1, now + SECOND));
        let pauses = [(); 7].map(|()| {
            let group = ask(&mut queue, dispatcher, now);
            assert!(queue.finish(dispatcher, group, DOWN(), now, now).is_empty());
            let asked = now;
            now = sleeps_until(&mut queue, dispatcher, now).unwrap();
            (now - asked).as_millis()
        });
        assert_eq!(pauses, [10, 20, 40, 80, 160, 250, 250]);
        let group = ask(&mut queue, dispatcher, now);
        let replies = queue.finish(dispatcher, group, DOWN(), now, start + SECOND);
        assert!(matches!(&replies[..], [reply] if reply.outcome.is_err()), "{replies:?}");
    }

    #[test]
    fn a_check_at_a_forecast_time_that_is_denied_for_a_millisecond_at_most_was_sent_too_early() {
        let (policy, now) = (Policy::per_minute("p", 5).unwrap(), Instant::now());
        let standing = Limiter::new(MemoryStore::new()).try_check("k", &policy, 1).unwrap().policies()[0].clone();
        for (is_aimed, wait_us, is_early) in [(true, 1_000, true), (true, 1_001, false), (false, 1_000, false)] {
            let mut queue = Queue::default();
            let dispatcher = queue.replace_dispatcher(now);
            queue.insert(1, waiter(&policy, 1, now + SECOND));
            let group = ask(&mut queue, dispatcher, now);
            queue.is_aimed = is_aimed;
            let (retry_after, next) = (Some(Duration::from_micros(wait_us)), Duration::ZERO);
            let standing = PolicyDecision { violated: true, available: 0, retry_after, next, ..standing.clone() };
            let decision = Decision::on_waiter(false, Source::Store, 1_000_000, Some(standing));
            assert!(queue.finish(dispatcher, group, Ok(decision), now, now).is_empty());
            assert_eq!(queue.aim.adjust(now) > now, is_early, "{is_aimed} {wait_us}");
        }
    }

    #[test]
    fn a_store_that_denies_with_a_wait_of_zero_is_asked_in_pauses_that_double_up_to_a_bound() {
        let (policy, mut now) = (Policy::per_minute("p", 5).unwrap(), Instant::now());
        let limiter = Limiter::new(MemoryStore::new());
        let denied = [5, 1].map(|cost| limiter.try_check("k", &policy, cost).unwrap())[1].policies()[0].clone();
        let standing = PolicyDecision { retry_after: Some(Duration::ZERO), next: Duration::ZERO, ..denied };
        let mut queue = Queue::default();
        let dispatcher = queue.replace_dispatcher(now);
        queue.insert(1, waiter(&policy, 1, now + SECOND));
        let pauses = [(); 7].map(|()| {
            let group = ask(&mut queue, dispatcher, now);
            let decision = Decision::on_waiter(false, Source::Store, 1_000_000, Some(standing.clone()));
            assert!(queue.finish(dispatcher, group, Ok(decision), now, now).is_empty());
            let asked = now;
            now = sleeps_until(&mut queue, dispatcher, now).unwrap();
            (now - asked).as_micros()
        });
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1_600, 1_600]);
    }

    #[test]
    fn units_of_callers_that_have_left_admit_the_next_callers_in_line_as_far_as_they_last() {
        let policies = [("p", 10), ("p", 11), ("q", 10)].map(|(name, limit)| Policy::per_minute(name, limit));
        let [policy, higher, other] = policies.map(Result::unwrap);
        let decision = Limiter::new(MemoryStore::new()).try_check("k", &policy, 4).unwrap();
        let (mut queue, mut units, now) = (Queue::default(), 4, Instant::now());
        (1..).zip([1, 1, 3, 2]).for_each(|(ticket, cost)| queue.insert(ticket, waiter(&policy, cost, now)));
        let heirs = queue.inherit(&mut units, &decision);
        let costs: Vec<_> = heirs.iter().map(|heir| heir.outcome.as_ref().unwrap().policies()[0].cost).collect();
        assert_eq!((costs, units, queue.len(), queue.cost), (vec![1, 1], 2, 2, 5));
        let mut further = Further::default();
        further.add(&other, 1);
        let plain = || waiter(&policy, 1, now);
        for head in [waiter(&higher, 1, now), Waiter { holds: true, ..plain() }, Waiter { further, ..plain() }] {
            let mut queue = Queue::default();
            queue.insert(1, head);
            assert!(queue.inherit(&mut 4, &decision).is_empty());
        }
    }
}
