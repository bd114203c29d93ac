//! What the store has said of costs that the queue refuses. Under a log and a counter, the queue knows the shortest
//! wait, and the store that of each cost. A flood of refused requests must not ask the store for each of them.

use std::time::Duration;

use tokio::time::Instant;

use crate::decision::{Decision, PolicyDecision, Source};
use crate::limiter::acquire::forecast::{after, for_waiter};
use crate::{clock::micros, policy::Policy};

/// The costs of which the store was asked last.
#[derive(Debug, Default)]
pub(in super::super) struct Peeks {
    known: Vec<Peek>,
    /// The number of changes of the count that the queue has seen.
    changes: u64,
}

#[derive(Debug)]
struct Peek {
    policy: Policy,
    cost: u64,
    /// `None` if the store has not denied the cost.
    denial: Option<Decision>,
    received: Instant,
    /// When the store is asked again.
    again: Instant,
    /// When the answer is forgotten.
    until: Instant,
}

/// What is known of a cost.
#[derive(Debug)]
pub(in super::super) enum Recalled {
    /// The store has to be asked. The number is for [`Peeks::remember`].
    Ask(u64),
    /// The denial of the store; `None` if it has not denied the cost.
    Known(Option<Decision>),
}

/// How long an answer holds. Other processes spend too, and may reset the count.
const BELIEVED: Duration = Duration::from_secs(1);

/// The most costs of which a queue knows. Others get what the queue itself knows, so that a client that varies its
/// costs does not ask for each of them.
const MOST: usize = 4;

impl Peeks {
    /// What is known of `cost`. While one request asks again, the others get the last answer.
    pub(in super::super) fn recall(&mut self, policy: &Policy, cost: u64, now: Instant) -> Recalled {
        self.known.retain(|peek| now < peek.until);
        let is_full = self.known.len() >= MOST;
        match self.known.iter_mut().find(|peek| peek.is_of(policy, cost)) {
            Some(peek) if now < peek.again => Recalled::Known(peek.denial_at(now)),
            Some(peek) => {
                peek.again = after(now, BELIEVED);
                Recalled::Ask(self.changes)
            }
            // What a larger cost waits for is enough.
            None if is_full => Recalled::Known(self.denial_above(policy, cost, now)),
            None => {
                // Others get what the queue knows until the answer is there.
                let (policy, until) = (policy.clone(), after(now, BELIEVED));
                self.known.push(Peek { policy, cost, denial: None, received: now, again: until, until });
                Recalled::Ask(self.changes)
            }
        }
    }

    /// The denial of the smallest cost above `cost` that is known.
    fn denial_above(&self, policy: &Policy, cost: u64, now: Instant) -> Option<Decision> {
        let larger = self.known.iter().filter(|peek| peek.cost > cost && peek.policy == *policy);
        let denials = larger.filter_map(|peek| peek.denial_at(now).map(|denial| (peek.cost, denial)));
        denials.min_by_key(|(of, _)| *of).map(|(_, denial)| for_waiter(&denial, cost))
    }

    /// Remembers the answer to a question that [`Self::recall`] gave the number `asked`.
    pub(in super::super) fn remember(
        &mut self,
        asked: u64,
        policy: &Policy,
        cost: u64,
        denial: Option<Decision>,
        now: Instant,
    ) {
        self.known.retain(|peek| !peek.is_of(policy, cost));
        if self.known.len() >= MOST {
            // A denial tells more than a cost that the store has not denied.
            let Some(place) = self.known.iter().position(|peek| denial.is_some() && peek.denial.is_none()) else {
                return;
            };
            self.known.remove(place);
        }
        let wait = denial.as_ref().and_then(Decision::retry_after).unwrap_or(Duration::MAX);
        let until = after(now, wait.min(2 * BELIEVED));
        // An answer may be older than a change of the count that came meanwhile.
        let again = if asked == self.changes { after(now, BELIEVED) } else { now };
        self.known.push(Peek { policy: policy.clone(), cost, denial, received: now, again, until });
    }

    /// Asks for each cost again, because units were charged.
    pub(super) fn ask_again(&mut self) {
        self.changes += 1;
        self.known.iter_mut().for_each(|peek| peek.again = peek.received);
    }

    /// Forgets all answers, because units have come back.
    pub(super) fn forget(&mut self) {
        self.changes += 1;
        self.known.clear();
    }
}

impl Peek {
    fn is_of(&self, policy: &Policy, cost: u64) -> bool {
        self.cost == cost && self.policy == *policy
    }

    /// The denial, whose waits are shorter by the time that has passed.
    fn denial_at(&self, now: Instant) -> Option<Decision> {
        let denial = self.denial.as_ref()?;
        let standing = denial.policies().first()?;
        let passed = now.saturating_duration_since(self.received);
        let left = |wait: Duration| wait.saturating_sub(passed);
        let standing = PolicyDecision {
            retry_after: standing.retry_after.map(left),
            next: left(standing.next),
            reset: left(standing.reset),
            ban: standing.ban.map(left),
            ..standing.clone()
        };
        let time_us = denial.time_us().unwrap_or(0).saturating_add(micros(passed));
        Some(Decision::on_waiter(false, Source::DenyCache, time_us, Some(standing)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limiter, ManualClock, MemoryStore};

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Policy {
        Policy::per_minute("p", 10).unwrap()
    }

    /// The denial of a cost of 1 for as long as `wait`.
    fn denial(wait: Duration) -> Decision {
        let clock = ManualClock::default();
        let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
        assert!(limiter.try_check("k", &policy(), 10).unwrap().is_allowed());
        clock.advance(Duration::from_secs(60) - wait);
        limiter.try_check("k", &policy(), 1).unwrap()
    }

    /// The wait that is known of a cost; `None` if the store has to be asked.
    fn wait(peeks: &mut Peeks, cost: u64, now: Instant) -> Option<Option<Duration>> {
        match peeks.recall(&policy(), cost, now) {
            Recalled::Ask(_) => None,
            Recalled::Known(denial) => Some(denial.and_then(|denial| denial.retry_after())),
        }
    }

    #[test]
    fn an_answer_holds_for_a_second_and_then_one_request_asks_again_while_the_others_get_the_last_one() {
        let (mut peeks, now) = (Peeks::default(), Instant::now());
        assert_eq!(wait(&mut peeks, 1, now), None);
        peeks.remember(0, &policy(), 1, Some(denial(30 * SECOND)), now);
        let last = now + SECOND - Duration::from_micros(1);
        assert_eq!(wait(&mut peeks, 1, last), Some(Some(29 * SECOND + Duration::from_micros(1))));
        assert_eq!((wait(&mut peeks, 1, now + SECOND), wait(&mut peeks, 2, now)), (None, None));
        assert_eq!(wait(&mut peeks, 1, now + SECOND), Some(Some(29 * SECOND)));
        // The answer does not come.
        let last = now + 2 * SECOND - Duration::from_micros(1);
        assert_eq!([last, now + 2 * SECOND].map(|at| wait(&mut peeks, 1, at).is_some()), [true, false]);
    }

    #[test]
    fn law_5_a_denial_is_remembered_no_longer_than_its_wait() {
        let (mut peeks, now) = (Peeks::default(), Instant::now());
        peeks.remember(0, &policy(), 1, Some(denial(SECOND / 2)), now);
        assert_eq!(wait(&mut peeks, 1, now + SECOND / 4), Some(Some(SECOND / 4)));
        assert_eq!(wait(&mut peeks, 1, now + SECOND / 2), None);
    }

    #[test]
    fn law_5_the_store_is_asked_again_after_a_change_of_the_count_also_while_an_answer_is_on_its_way() {
        let (mut peeks, now) = (Peeks::default(), Instant::now());
        let changes: [fn(&mut Peeks); 2] = [Peeks::ask_again, Peeks::forget];
        for (number, change) in (0..).zip(changes) {
            peeks.remember(number, &policy(), 1, Some(denial(30 * SECOND)), now);
            assert!(wait(&mut peeks, 1, now).is_some());
            change(&mut peeks);
            assert_eq!(wait(&mut peeks, 1, now), None, "change {number}");
            peeks.remember(number, &policy(), 1, Some(denial(30 * SECOND)), now);
            assert_eq!(wait(&mut peeks, 1, now), None, "asked before change {number}");
        }
    }

    #[test]
    fn one_request_asks_for_a_cost_and_the_others_get_what_the_queue_knows_until_the_answer_is_there() {
        let (mut peeks, now) = (Peeks::default(), Instant::now());
        assert_eq!([(); 3].map(|()| wait(&mut peeks, 1, now)), [None, Some(None), Some(None)]);
        peeks.remember(0, &policy(), 1, Some(denial(30 * SECOND)), now);
        assert_eq!(wait(&mut peeks, 1, now), Some(Some(30 * SECOND)));
    }

    #[test]
    fn law_5_a_cost_for_which_there_is_no_place_waits_for_as_long_as_the_next_larger_one() {
        let (mut peeks, now) = (Peeks::default(), Instant::now());
        for cost in [50, 40, 30] {
            peeks.remember(0, &policy(), cost, Some(denial(u32::try_from(cost).unwrap() * SECOND)), now);
        }
        peeks.remember(0, &policy(), 10, None, now);
        assert_eq!([35, 60].map(|cost| wait(&mut peeks, cost, now)), [Some(Some(40 * SECOND)), Some(None)]);
        // A denial takes the place of a cost that the store has not denied.
        peeks.remember(0, &policy(), 35, Some(denial(36 * SECOND)), now);
        assert_eq!(wait(&mut peeks, 35, now), Some(Some(36 * SECOND)));
    }

    #[test]
    fn law_6_of_more_costs_than_a_queue_remembers_the_store_is_not_asked() {
        let (mut peeks, now) = (Peeks::default(), Instant::now());
        for cost in 1..=6 {
            assert_eq!(wait(&mut peeks, cost, now).is_some(), cost > 4, "{cost}");
            peeks.remember(0, &policy(), cost, None, now);
        }
        assert_eq!(peeks.known.len(), 4);
        assert_eq!(wait(&mut peeks, 6, now + 2 * SECOND), None, "the others are forgotten");
    }
}
