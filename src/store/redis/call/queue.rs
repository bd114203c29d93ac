//! The requests of one slot that wait for a call, and the queues of one runtime: one for each slot, with the traffic of
//! each failure domain.
//!
//! The queue has lanes, and a key always waits in the same lane (stochastic fairness queueing, McKenney 1990). A batch
//! takes from the lanes in turn, so a flood on one key fills its own lane and hardly delays other keys.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{hash::BuildHasher, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use super::pace::{LEAST_CALLS, MOST_CALLS, Pace};
use super::traffic::{MAX_CHARGES_PER_CALL, Traffic, domain_of};
use super::{denials::Denials, outgoing::Request};
use crate::{error::Error, runtime::random::FastState, verdict::Verdict};

/// The longest time that a request waits while no call starts: a fraction of the round trip to a distant Redis, and
/// longer than a call to a Redis nearby.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(3);
/// The longest average interval between requests of a slot for which it pays to wait for more of them. With slower
/// requests, a longer wait would cost more than a call that they share saves.
const FILLING_INTERVAL: Duration = Duration::from_micros(500);
/// The number of lanes of a queue.
const LANES: usize = 16;
/// The most requests in one lane. They take Redis less than twenty milliseconds, which is within the default deadline.
const LANE_CAPACITY: usize = 4096;
/// The most requests that one batch takes from the queue, so that the lock is held for a short time.
const MAX_TAKEN: usize = 1024;

/// A request in the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) request: Request,
    pub(crate) verdict: oneshot::Sender<Result<Verdict, Error>>,
}

/// The requests of one slot that wait, and the number of its calls in flight.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    lanes: [VecDeque<Waiting>; LANES],
    /// The lane whose turn it is.
    turn: usize,
    /// Number of requests in all lanes.
    waiting: usize,
    /// Number of calls of the slot that are in flight or will be.
    pub(crate) in_flight: usize,
    /// Number of these calls that have a connection, and wait for their turn to take a batch.
    pub(crate) awaiting_turn: usize,
    /// When requests were last taken for a call.
    last_taken: Option<Instant>,
    /// Whether a task starts calls for requests that wait for [`MAX_WAIT`].
    pub(crate) is_watched: bool,
}

/// The requests for one call.
#[derive(Default)]
pub(crate) struct Taken {
    pub(crate) batch: Vec<Waiting>,
    /// Requests whose denial was remembered while they waited.
    pub(crate) denied: Vec<(Waiting, Verdict)>,
    /// The number of requests that have left the queue, including those whose callers have gone.
    pub(crate) popped: usize,
}

impl Queue {
    /// Whether a lane has room for one more request.
    pub(crate) fn has_room(&self, lane: usize) -> bool {
        self.lanes[lane].len() < LANE_CAPACITY
    }

    /// Adds a request to its lane.
    pub(crate) fn push(&mut self, lane: usize, waiting: Waiting) {
        self.lanes[lane].push_back(waiting);
        self.waiting += 1;
    }

    /// Returns whether a further call has to start, and counts the call if so.
    ///
    /// A fast Redis nearby gets few large calls, and over a network as many calls as fill the way. Beyond these, a call
    /// starts only if full batches wait: the more calls are in flight, the more of them.
    pub(super) fn start_call(&mut self, pace: &Pace) -> bool {
        let waits_in_vain = || self.waiting >= MAX_CHARGES_PER_CALL * self.in_flight;
        let starts = !self.will_be_taken()
            && self.in_flight < MOST_CALLS
            && (self.in_flight < LEAST_CALLS || pace.has_room(self.in_flight) || waits_in_vain());
        self.in_flight += usize::from(starts);
        starts
    }

    /// Returns whether a request may be sent at once by its caller's task, and counts its call if so: no request waits
    /// and no call is in flight.
    pub(crate) fn start_lone_call(&mut self) -> bool {
        let starts = self.is_empty() && self.in_flight == 0;
        self.in_flight += usize::from(starts);
        starts
    }

    /// Whether calls that wait for their turn can take all requests that wait, if each has one charge. If not, another
    /// call starts for the remaining requests as soon as those calls have taken theirs.
    pub(crate) fn will_be_taken(&self) -> bool {
        self.waiting <= MAX_CHARGES_PER_CALL * self.awaiting_turn
    }

    /// Returns whether a call should wait for its turn, and counts it if so: more requests are likely to join it.
    pub(crate) fn await_turn(&mut self) -> bool {
        let awaits = self.is_filling();
        self.awaiting_turn += usize::from(awaits);
        awaits
    }

    /// Whether more requests are likely to arrive soon: those that wait have come quickly after each other. Not if they
    /// fill a call already.
    fn is_filling(&self) -> bool {
        let waiting = u32::try_from(self.waiting).unwrap_or(u32::MAX);
        let is_recent = |taken: Instant| taken.elapsed() <= FILLING_INTERVAL.saturating_mul(waiting);
        self.waiting < MAX_CHARGES_PER_CALL && self.last_taken.is_some_and(is_recent)
    }

    /// Returns whether a further call has to start because none has started for [`MAX_WAIT`], and counts the call if
    /// so.
    ///
    /// Over a network, the replies to all calls in flight may still take a long time.
    pub(crate) fn start_late_call(&mut self) -> bool {
        let starts = !self.is_empty()
            && self.in_flight < MOST_CALLS
            && self.last_taken.is_none_or(|taken| taken.elapsed() >= MAX_WAIT);
        self.in_flight += usize::from(starts);
        starts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Takes a batch, lane by lane. Drops requests whose callers have gone, and puts requests with a remembered denial
    /// into [`Taken::denied`].
    pub(crate) fn take(&mut self, denials: &Denials) -> Taken {
        let mut taken = Taken { batch: Vec::with_capacity(self.waiting.min(MAX_CHARGES_PER_CALL)), ..Taken::default() };
        let (mut charges, mut empty, mut popped) = (0, 0, 0);
        while empty < LANES && popped < MAX_TAKEN {
            let lane = self.turn;
            self.turn = (lane + 1) % LANES;
            let Some(waiting) = self.lanes[lane].pop_front() else {
                empty += 1;
                continue;
            };
            empty = 0;
            popped += 1;
            waiting.request.outgoing.progress.taken();
            if waiting.verdict.is_closed() {
                continue;
            }
            if let Some(denial) = waiting.request.denied_since(denials) {
                taken.denied.push((waiting, denial));
                continue;
            }
            charges += waiting.request.len();
            if charges > MAX_CHARGES_PER_CALL && !taken.batch.is_empty() {
                self.turn = lane;
                self.lanes[lane].push_front(waiting);
                popped -= 1;
                break;
            }
            taken.batch.push(waiting);
        }
        self.waiting -= popped;
        taken.popped = popped;
        if !taken.batch.is_empty() {
            self.last_taken = Some(Instant::now());
        }
        taken
    }
}

/// Queues by slot.
type BySlot = HashMap<u16, Queue, FastState>;

/// The queues and the traffic of one runtime.
#[derive(Debug)]
pub(crate) struct Queues {
    by_slot: Mutex<BySlot>,
    hasher: FastState,
    /// The traffic by failure domain: one domain of a cluster may be silent while others answer.
    traffic: Box<[Arc<Traffic>]>,
}

impl Queues {
    /// Queues of a store with this number of failure domains.
    pub(crate) fn new(domains: usize) -> Self {
        Self { by_slot: Mutex::default(), hasher: FastState::default(), traffic: Traffic::of_domains(domains) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BySlot> {
        // A panic under the lock leaves valid queues.
        self.by_slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn traffic(&self, slot: u16) -> &Arc<Traffic> {
        &self.traffic[domain_of(slot, self.traffic.len())]
    }

    /// The lane of a request, which its first key determines.
    pub(crate) fn lane_of(&self, request: &Request) -> usize {
        let hash = request.charges().next().map_or(0, |(_, key)| self.hasher.hash_one(key));
        usize::try_from(hash % LANES as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{
        check::Check,
        policy::Policy,
        store::redis::call::{outgoing::Outgoing, progress::Progress},
    };

    #[test]
    fn full_batches_start_calls_up_to_the_maximum_and_others_up_to_two() {
        for (waiting, most) in [(0, 0), (1, 2), (MAX_CHARGES_PER_CALL * 2, 3), (usize::MAX, MOST_CALLS)] {
            let mut queue = Queue { waiting, ..Queue::default() };
            let started = (0..100).filter(|_| queue.start_call(&Pace::default())).count();
            assert_eq!((started, queue.in_flight), (most, most), "{waiting} requests wait");
        }
    }

    #[test]
    fn over_a_network_calls_start_until_they_fill_the_way() {
        let mut queue = Queue { waiting: 1, ..Queue::default() };
        let started = (0..100).filter(|_| queue.start_call(&Pace::of_calls(5))).count();
        assert_eq!((started, queue.in_flight), (5, 5));
    }

    #[test]
    fn a_queue_is_filling_while_requests_come_quickly_and_a_call_has_room() {
        let taken = |ago: Duration| Instant::now().checked_sub(ago);
        let filling = |waiting, last_taken| Queue { waiting, last_taken, ..Queue::default() }.is_filling();
        assert!(filling(20, taken(9 * FILLING_INTERVAL)));
        assert!(!filling(1, taken(2 * FILLING_INTERVAL)));
        assert!(!filling(MAX_CHARGES_PER_CALL, taken(Duration::ZERO)));
        assert!(!filling(1, None));
    }

    #[test]
    fn a_request_is_sent_by_its_caller_only_if_it_is_alone() {
        let starts = |waiting, in_flight| Queue { waiting, in_flight, ..Queue::default() }.start_lone_call();
        assert_eq!([starts(0, 0), starts(1, 0), starts(0, 1)], [true, false, false]);
    }

    #[test]
    fn no_call_starts_for_requests_that_a_call_will_take_at_its_turn() {
        let mut queue = Queue { waiting: MAX_CHARGES_PER_CALL, in_flight: 1, awaiting_turn: 1, ..Queue::default() };
        assert!(!queue.start_call(&Pace::default()));
        queue.waiting += 1;
        assert!(queue.start_call(&Pace::default()));
        assert_eq!(queue.in_flight, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_call_starts_only_if_requests_wait_and_no_call_has_taken_any_for_a_while() {
        let long_ago = Instant::now();
        advance(MAX_WAIT).await;
        for (waiting, in_flight, last_taken, starts) in [
            (1, 1, None, true),
            (1, MOST_CALLS - 1, Some(long_ago), true),
            (0, 1, None, false),
            (1, MOST_CALLS, None, false),
            (1, 1, Some(Instant::now()), false),
        ] {
            let mut queue = Queue { waiting, in_flight, last_taken, ..Queue::default() };
            let after = in_flight + usize::from(starts);
            assert_eq!((queue.start_late_call(), queue.in_flight), (starts, after), "{waiting} {in_flight}");
        }
    }

    #[test]
    fn a_call_takes_as_many_whole_requests_as_it_has_room_for_and_leaves_the_others() {
        let policy = Policy::per_minute("p", 10).unwrap();
        let and_key = |check: Check, key: usize| check.and(key.to_string(), &policy, 1);
        let check = (1..MAX_CHARGES_PER_CALL / 2).fold(Check::new("0", &policy, 1), and_key);
        let keys = check.charges().iter().map(|charge| charge.key.clone()).collect();
        let outgoing = Arc::new(Outgoing::new(check, keys, Progress::new(false), None));
        let (mut queue, mut callers) = (Queue::default(), Vec::new());
        for lane in 0..5 {
            let (verdict, caller) = oneshot::channel();
            callers.push(caller);
            queue.push(lane, Waiting { request: Request::whole(Arc::clone(&outgoing)), verdict });
        }
        // A request whose caller has gone takes no room.
        drop(callers.remove(3));
        let denials = Denials::new(None, None, false);
        let mut take = || {
            let Taken { batch, popped, .. } = queue.take(&denials);
            (batch.len(), popped, queue.waiting, queue.last_taken.is_some())
        };
        assert_eq!([take(), take(), take()], [(2, 2, 3, true), (2, 3, 0, true), (0, 0, 0, true)]);
    }
}
