//! The ends of holds of one failure domain: those to send, those in flight, and those to send again.

use std::collections::{BTreeMap, VecDeque};
use std::{sync::Arc, time::Duration};

use tokio::{runtime, time::Instant};

use crate::runtime::random::{self, RandomMap};
use crate::{clock::whole_micros, error::Error, hold::SettleAnswer, limiter::hold::age::Ending};

/// The end of a hold that is kept until the store has answered it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) ending: Arc<Ending>,
    /// When the store has ended the hold by itself.
    until: Instant,
    /// Whether the store may have received the end.
    pub(super) is_sent: bool,
    /// How often the store has answered that there is no such hold.
    misses: u32,
}

/// An end that is to be sent now.
pub(super) struct Sent {
    pub(super) number: u64,
    /// How often the end was sent under this number.
    pub(super) attempt: u32,
    pub(super) ending: Arc<Ending>,
}

#[derive(Debug)]
struct InFlight {
    kept: Kept,
    is_repeat: bool,
    attempt: u32,
    sent: Instant,
    /// The runtime whose task waits for the answer.
    runtime: runtime::Id,
}

/// Ends to send again, those that are due first at the front.
type Repeats = BTreeMap<(Instant, u64), Kept>;

/// Why an end is sent again, the most urgent first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Class {
    /// The store has never received it.
    Unsent,
    /// The store may have received it.
    Unknown,
    /// The store may receive the hold later than its end.
    Uncertain,
}

/// The ends of one failure domain.
#[derive(Debug, Default)]
pub(super) struct Domain {
    /// Sent as soon as possible.
    new: VecDeque<Kept>,
    repeats: [Repeats; 3],
    in_flight: RandomMap<u64, InFlight>,
    repeats_in_flight: usize,
    /// The last number of an end.
    number: u64,
    /// Until when nothing is sent again, because the domain has not answered, and the length of this pause.
    pause: Option<(Instant, Duration)>,
}

/// Largest number of ends in flight: fewer than wait in one lane of a `RedisStore`, so that checks find room beside.
const MOST_IN_FLIGHT: usize = 2_048;
/// Largest number of repeated ends among them.
const MOST_REPEATS_IN_FLIGHT: usize = 512;
/// Largest number of repeated ends in flight while the domain does not answer.
const MOST_PROBES: usize = 16;
/// The time before an end is sent again. Doubled with each answer that there is no such hold.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause of a domain that does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long the end of an uncertain hold is sent again after the store's first answer that there is no such hold. TCP
/// sends a lost packet again after 200 ms to 1 s. A hold that takes longer on its way stays until its time-to-live.
const LONGEST_WAY: Duration = Duration::from_secs(2);

impl Kept {
    pub(super) fn new(ending: Ending) -> Self {
        let ttl = ending.hold.policy.holds().map_or(Duration::ZERO, |holds| holds.ttl());
        Self { ending: Arc::new(ending), until: Instant::now() + ttl, is_sent: false, misses: 0 }
    }

    /// Whether the store has answered that there is no such hold, and there may never have been one.
    pub(super) fn is_missed(&self) -> bool {
        self.ending.is_uncertain && self.misses > 0
    }

    fn class(&self) -> Class {
        match self.ending.is_uncertain {
            true => Class::Uncertain,
            false if self.is_sent => Class::Unknown,
            false => Class::Unsent,
        }
    }

    /// Notes an answer that is not the last one. Returns when the end is sent again.
    fn on_answer(&mut self, answer: &Result<SettleAnswer, Error>, now: Instant) -> Instant {
        let pause = match answer {
            Ok(_) => {
                self.until = self.until.min(now + LONGEST_WAY);
                self.misses += 1;
                PAUSE * 2_u32.saturating_pow(self.misses.min(4) - 1)
            }
            Err(error) => {
                self.is_sent |= error.may_have_charged();
                PAUSE
            }
        };
        now + pause + jitter(pause)
    }
}

/// Spreads what has failed at one instant over an eighth of the pause.
fn jitter(pause: Duration) -> Duration {
    let thousandth = u32::try_from(random::number() % 1_000).unwrap_or(0);
    whole_micros(pause / 8 * thousandth / 1_000)
}

impl Domain {
    pub(super) fn push(&mut self, kept: Kept) {
        self.new.push_back(kept);
    }

    /// Puts an end in flight that its caller sends.
    pub(super) fn put_in_flight(&mut self, kept: Kept, is_repeat: bool, now: Instant, here: runtime::Id) -> Sent {
        self.number += 1;
        self.repeats_in_flight += usize::from(is_repeat);
        let sent = Sent { number: self.number, attempt: 1, ending: Arc::clone(&kept.ending) };
        self.in_flight.insert(self.number, InFlight { kept, is_repeat, attempt: 1, sent: now, runtime: here });
        sent
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < MOST_IN_FLIGHT
    }

    /// Whether an end waits to be sent, now or later.
    pub(super) fn has_waiting(&self) -> bool {
        !self.new.is_empty() || self.repeats.iter().any(|repeats| !repeats.is_empty())
    }

    /// Takes the next end to send, new ones first. Ends that were kept for too long go to `late`.
    pub(super) fn take(&mut self, now: Instant, here: runtime::Id, late: &mut Vec<Kept>) -> Option<Sent> {
        while self.has_room() {
            let (kept, is_repeat) = match self.new.pop_front() {
                Some(kept) => (kept, false),
                None => (self.take_repeat(now)?, true),
            };
            if kept.until > now {
                return Some(self.put_in_flight(kept, is_repeat, now, here));
            }
            late.push(kept);
        }
        None
    }

    fn take_repeat(&mut self, now: Instant) -> Option<Kept> {
        let most = match self.pause {
            Some((until, _)) if now < until => return None,
            Some(_) => MOST_PROBES,
            None => MOST_REPEATS_IN_FLIGHT,
        };
        if self.repeats_in_flight >= most {
            return None;
        }
        let is_due = |repeats: &&mut Repeats| repeats.first_key_value().is_some_and(|((due, _), _)| *due <= now);
        Some(self.repeats.iter_mut().find(is_due)?.pop_first()?.1)
    }

    /// Notes the answer to an end in flight. Returns the end if this is its last answer.
    pub(super) fn on_answer(
        &mut self,
        number: u64,
        answer: &Result<SettleAnswer, Error>,
        now: Instant,
    ) -> Option<Kept> {
        // Another runtime has sent it too, and was answered first.
        let kept = self.remove_in_flight(number)?;
        self.on_evidence(answer, now);
        if kept.ending.is_ended_by(answer) {
            return Some(kept);
        }
        self.repeat(kept, answer, now);
        None
    }

    /// Keeps an end after an answer that is not its last one.
    pub(super) fn repeat(&mut self, mut kept: Kept, answer: &Result<SettleAnswer, Error>, now: Instant) {
        let due = kept.on_answer(answer, now);
        self.number += 1;
        self.repeats[kept.class() as usize].insert((due, self.number), kept);
    }

    /// Notes whether the domain answers.
    pub(super) fn on_evidence(&mut self, answer: &Result<SettleAnswer, Error>, now: Instant) {
        self.pause = match (answer, self.pause) {
            (Ok(_), _) => None,
            (Err(_), None) => Some((now + PAUSE, PAUSE)),
            (Err(_), Some((until, length))) if until <= now => {
                let length = (length * 2).min(LONGEST_PAUSE);
                Some((now + length, length))
            }
            (Err(_), pause) => pause,
        };
    }

    /// Notes that the task of an end is gone, with its runtime. `is_sent`: the store may have received the end.
    pub(super) fn on_abort(&mut self, number: u64, attempt: u32, is_sent: bool) {
        if self.in_flight.get(&number).is_some_and(|in_flight| in_flight.attempt == attempt)
            && let Some(mut kept) = self.remove_in_flight(number)
        {
            kept.is_sent |= is_sent;
            self.new.push_back(kept);
        }
    }

    /// Forgets an end whose task has panicked: it would panic again.
    pub(super) fn forget(&mut self, number: u64) -> Option<Kept> {
        self.remove_in_flight(number)
    }

    fn remove_in_flight(&mut self, number: u64) -> Option<Kept> {
        let InFlight { kept, is_repeat, .. } = self.in_flight.remove(&number)?;
        self.repeats_in_flight -= usize::from(is_repeat);
        Some(kept)
    }

    /// Takes over what other runtimes have sent long ago: they may have ended, or stand still. An end may be sent
    /// twice, because it is idempotent.
    pub(super) fn take_over(&mut self, now: Instant, here: runtime::Id, stuck: Duration) -> Vec<Sent> {
        let mut taken = Vec::new();
        for (number, in_flight) in &mut self.in_flight {
            if in_flight.runtime != here && in_flight.sent + stuck <= now {
                in_flight.attempt += 1;
                in_flight.kept.is_sent = true;
                (in_flight.sent, in_flight.runtime) = (now, here);
                let ending = Arc::clone(&in_flight.kept.ending);
                taken.push(Sent { number: *number, attempt: in_flight.attempt, ending });
            }
        }
        taken
    }

    /// When this domain has to be looked after. What `here` has in flight ends by itself.
    pub(super) fn next_look(&self, now: Instant, here: Option<runtime::Id>, stuck: Duration) -> Option<Instant> {
        let others = self.in_flight.values().filter(|in_flight| Some(in_flight.runtime) != here);
        let stuck = others.map(|in_flight| in_flight.sent + stuck).min();
        let new = (!self.new.is_empty() && self.has_room()).then_some(now);
        [stuck, new, self.next_repeat(now)].into_iter().flatten().min()
    }

    /// When the next end is sent again. `None` if the answer to an end in flight comes first, and sends it.
    pub(super) fn next_repeat(&self, now: Instant) -> Option<Instant> {
        if self.repeats_in_flight > 0 || !self.has_room() {
            return None;
        }
        let pause = self.pause.map_or(now, |(until, _)| until);
        let repeats = self.repeats.iter().filter_map(|repeats| repeats.first_key_value());
        repeats.map(|((due, _), _)| (*due).max(pause)).min()
    }

    /// Whether nothing is left but ends of uncertain holds that are repeated.
    pub(super) fn is_quiet(&self) -> bool {
        self.new.is_empty() && self.in_flight.is_empty() && self.repeats[..2].iter().all(Repeats::is_empty)
    }

    /// Makes all ends that have failed due now.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.pause = None;
        for repeats in &mut self.repeats[..2] {
            *repeats = std::mem::take(repeats).into_iter().map(|((_, number), kept)| ((now, number), kept)).collect();
        }
    }

    pub(super) fn repeated(&self, class: Class) -> usize {
        self.repeats[class as usize].len()
    }

    pub(super) fn drop_oldest(&mut self, class: Class) -> Option<Kept> {
        self.repeats[class as usize].pop_first().map(|(_, kept)| kept)
    }

    /// Gives memory back after a burst.
    pub(super) fn shrink(&mut self) {
        if self.new.capacity() > 1_024 && self.new.len() < self.new.capacity() / 8 {
            self.new.shrink_to(self.new.len() * 2);
        }
    }
}

/// The classes that are bounded: the others are bounded by the open holds.
pub(super) const BOUNDED: [Class; 2] = [Class::Unknown, Class::Uncertain];

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, iter};

    use super::*;
    use crate::{Policy, check::Check, error::ErrorKind, policy::HoldSettings};

    const SECOND: Duration = Duration::from_secs(1);
    const MICRO: Duration = Duration::from_micros(1);
    const DOWN: fn() -> Result<SettleAnswer, Error> = || Err(Error::new(ErrorKind::Unavailable, "down"));

    fn kept(is_uncertain: bool) -> Kept {
        let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new().with_ttl(3_600 * SECOND));
        let check = Check::hold("k", &policy, 4);
        let (_, hold, held) = check.holds().next().unwrap();
        Kept::new(Ending { hold, held, actual: 0, cause: None, is_uncertain })
    }

    fn runtime() -> runtime::Runtime {
        runtime::Builder::new_current_thread().build().unwrap()
    }

    fn take_all(domain: &mut Domain, now: Instant) -> Vec<Sent> {
        let runtime = runtime();
        iter::from_fn(|| domain.take(now, runtime.handle().id(), &mut Vec::new())).collect()
    }

    #[test]
    fn a_hold_that_is_missing_is_asked_for_after_times_that_double_and_are_spread() {
        let (mut uncertain, mut certain, now) = (kept(true), kept(false), Instant::now());
        assert!(!uncertain.is_missed());
        for pause in [250, 500, 1_000, 2_000, 2_000].map(Duration::from_millis) {
            let due = uncertain.on_answer(&Ok(SettleAnswer::NotHeld), now);
            assert!(due >= now + pause && due < now + pause + pause / 8, "{pause:?}: {:?}", due - now);
            assert_eq!(uncertain.until, now + LONGEST_WAY);
        }
        certain.misses = 1;
        assert!(uncertain.is_missed() && !certain.is_missed());
        let ends = |answer| uncertain.ending.is_ended_by(&Ok(answer));
        assert!(ends(SettleAnswer::Settled) && !ends(SettleAnswer::NotHeld));
        assert!((0..200).map(|_| jitter(PAUSE)).collect::<HashSet<_>>().len() > 1);
    }

    #[test]
    fn a_domain_that_does_not_answer_gets_sixteen_ends_after_pauses_that_double_up_to_a_second() {
        let (mut domain, mut now) = (Domain::default(), Instant::now());
        domain.repeats[Class::Unsent as usize].extend((1_000..1_700).map(|number| ((now, number), kept(false))));
        domain.on_evidence(&DOWN(), now);
        for pause in [250, 500, 1_000, 1_000].map(Duration::from_millis) {
            assert_eq!(domain.next_repeat(now), Some(now + pause));
            now += pause;
            assert!(take_all(&mut domain, now - MICRO).is_empty());
            domain.on_evidence(&DOWN(), now - MICRO);
            let probes = take_all(&mut domain, now);
            assert_eq!((probes.len(), domain.next_repeat(now)), (16, None), "the answers come first");
            probes.iter().for_each(|probe| drop(domain.on_answer(probe.number, &DOWN(), now)));
        }
        domain.hurry(now);
        assert_eq!(take_all(&mut domain, now).len(), 512);
    }

    #[test]
    fn ends_wait_while_too_many_are_in_flight_and_leave_no_memory() {
        let (mut domain, now) = (Domain::default(), Instant::now());
        (0..5_000).for_each(|_| domain.push(kept(false)));
        let sent = take_all(&mut domain, now);
        assert_eq!((sent.len(), domain.next_look(now, None, SECOND)), (2_048, Some(now + SECOND)));
        assert!(domain.on_answer(sent[0].number, &Ok(SettleAnswer::Settled), now).is_some());
        assert_eq!(domain.next_look(now, None, SECOND), Some(now), "there is room for one");
        assert_eq!(take_all(&mut domain, now).len(), 1);
        domain.new.truncate(100);
        domain.shrink();
        assert!(domain.new.capacity() <= 1_024, "{}", domain.new.capacity());
    }

    #[test]
    fn an_end_that_another_runtime_has_sent_long_ago_is_sent_again_and_stays_if_that_one_ends() {
        let (mut domain, now, runtimes) = (Domain::default(), Instant::now(), [runtime(), runtime()]);
        let [here, there] = runtimes.each_ref().map(|runtime| runtime.handle().id());
        let sent = domain.put_in_flight(kept(false), false, now, there);
        assert_eq!(domain.next_look(now, Some(there), SECOND), None);
        assert!(domain.take_over(now + SECOND - MICRO, here, SECOND).is_empty());
        assert!(domain.take_over(now + SECOND, there, SECOND).is_empty());
        let again = domain.take_over(now + SECOND, here, SECOND).pop().unwrap();
        domain.on_abort(sent.number, sent.attempt, true);
        assert!(!domain.has_waiting());
        domain.on_abort(again.number, again.attempt, false);
        let next = take_all(&mut domain, now).pop().unwrap();
        assert!(domain.on_answer(next.number, &Ok(SettleAnswer::Expired), now).unwrap().is_sent);
    }
}
