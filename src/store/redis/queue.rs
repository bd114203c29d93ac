//! Checks of one slot that wait for a call.
//!
//! The queue has lanes, and a key always waits in the same one (stochastic fairness queueing, McKenney 1990). Batches
//! take from the lanes in turn, so a flood on one key fills its own lane and hardly delays other keys.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{
    protocol::Request,
    shared::{Original, Shared},
};
use crate::{check::Check, error::Error, verdict::Verdict};

/// Calls that are under way at the same time whatever they carry: one is judged while the next one travels.
const ALWAYS_IN_FLIGHT: usize = 2;
/// Calls that are under way at the same time at most. Over a network a call takes a round trip, and what waits for it
/// must not wait for its deadline: full batches do not wait for a reply.
const MOST_IN_FLIGHT: usize = 32;
/// Charges in one call: less than half a millisecond of Redis' time.
pub(super) const MAX_CHARGES: usize = 2 * Check::MAX_CHARGES;
/// A check does not wait longer than this while no call starts: a fraction of the round trips that matter, and more than
/// a call takes on a machine beside Redis.
pub(super) const LONGEST_REST: Duration = Duration::from_millis(3);
pub(super) const LANES: usize = 16;
/// Checks that wait in one lane: less than twenty milliseconds of Redis' time, within the deadline.
const LANE_CAPACITY: usize = 4096;
/// Checks that are taken from the queue under one lock.
const MOST_TAKEN: usize = 1024;

/// A check in the queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request: Request,
    /// What a remembered denial is found by; `None` if denials are not remembered.
    pub(super) original: Option<Box<Original>>,
    pub(super) verdict: oneshot::Sender<Result<Verdict, Error>>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    lanes: [VecDeque<Waiting>; LANES],
    /// The lane whose turn it is.
    turn: usize,
    waiting: usize,
    pub(super) in_flight: usize,
    /// When checks were last taken for a call.
    last_taken: Option<Instant>,
    /// Whether a task looks after checks that wait for long.
    pub(super) is_watched: bool,
}

/// What the queue gives to a call.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) batch: Vec<Waiting>,
    /// Checks whose denial has become known while they waited.
    pub(super) denied: Vec<(Waiting, Verdict)>,
    /// How many have left the queue, with those whose callers have gone.
    pub(super) popped: usize,
}

impl Queue {
    /// Whether a lane takes one more check.
    pub(super) fn has_room(&self, lane: usize) -> bool {
        self.lanes[lane].len() < LANE_CAPACITY
    }

    /// Puts a check into its lane.
    pub(super) fn push(&mut self, lane: usize, waiting: Waiting) {
        self.lanes[lane].push_back(waiting);
        self.waiting += 1;
    }

    /// Whether a further call is to start, and counts it if so.
    ///
    /// The more calls are under way, the more full batches have to wait: a fast Redis gets few large calls, and over a
    /// network the number of calls follows the load.
    pub(super) fn starts(&mut self) -> bool {
        let starts = self.in_flight < ALWAYS_IN_FLIGHT
            || (self.in_flight < MOST_IN_FLIGHT && self.waiting >= MAX_CHARGES * self.in_flight);
        self.in_flight += usize::from(starts);
        starts
    }

    /// Whether a further call is to start because none has for a while, and counts it if so.
    ///
    /// Over a network the calls that are under way may all be far from their ends.
    pub(super) fn starts_late(&mut self) -> bool {
        let starts = !self.is_empty()
            && self.in_flight < MOST_IN_FLIGHT
            && self.last_taken.is_none_or(|taken| taken.elapsed() >= LONGEST_REST);
        self.in_flight += usize::from(starts);
        starts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Takes a batch, lane by lane, without the checks whose callers have gone or whose denial is known by now.
    pub(super) fn take(&mut self, shared: &Shared) -> Taken {
        let mut taken = Taken { batch: Vec::with_capacity(self.waiting.min(MAX_CHARGES)), ..Taken::default() };
        let (mut charges, mut empty, mut popped) = (0, 0, 0);
        while empty < LANES && popped < MOST_TAKEN {
            let lane = self.turn;
            self.turn = (lane + 1) % LANES;
            let Some(waiting) = self.lanes[lane].pop_front() else {
                empty += 1;
                continue;
            };
            empty = 0;
            popped += 1;
            if waiting.verdict.is_closed() {
                continue;
            }
            if let Some(denial) = waiting.original.as_ref().and_then(|original| shared.denied_since(original)) {
                taken.denied.push((waiting, denial));
                continue;
            }
            charges += waiting.request.check.charges().len();
            if charges > MAX_CHARGES && !taken.batch.is_empty() {
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
