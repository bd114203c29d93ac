//! Checks that wait at the same time travel in one call.
//!
//! A check goes out at once while fewer than [`IN_FLIGHT`] calls are under way; what comes in meanwhile waits and
//! leaves together with the next one. So a lone check never waits, and the busier the process, the larger the batches.
//!
//! The queue has lanes, and a key always waits in the same one (stochastic fairness queueing, McKenney 1990). Batches
//! take from the lanes in turn, so that a flood on one key fills its own lane and delays hardly anybody else. A full
//! lane refuses at once.
//!
//! On a cluster only checks of one slot may share a call. So each slot has a queue and calls of its own: one that is
//! hot, or whose master does not answer, holds up no other.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::{
    protocol::Request,
    shared::{Link, Shared},
};
use crate::{
    check::Check,
    error::{Error, ErrorKind, Told},
    store::Verdict,
};

/// The slot of all keys where there are no slots.
pub(super) const WHOLE: u16 = 0;
/// Calls of a slot under way at the same time: one is judged while the next one is on its way.
const IN_FLIGHT: usize = 2;
/// Charges in one call: less than half a millisecond of Redis' time.
const MAX_CHARGES: usize = 2 * Check::MAX_CHARGES;
const LANES: usize = 16;
/// Checks that wait in one lane: less than twenty milliseconds of Redis' time, within the deadline.
const LANE_CAPACITY: usize = 4096;
/// Slots whose queues are kept while nothing is in them, for those who come next: a kilobyte or two each.
const IDLE_QUEUES: usize = 1024;

#[derive(Debug)]
pub(super) struct Batcher {
    /// By slot.
    queues: Mutex<HashMap<u16, Queue, RandomState>>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Queue {
    lanes: [VecDeque<Waiting>; LANES],
    /// The lane whose turn it is.
    turn: usize,
    in_flight: usize,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    verdict: oneshot::Sender<Result<Verdict, Error>>,
}

impl Batcher {
    pub(super) fn new() -> Self {
        Self { queues: Mutex::default(), hasher: RandomState::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, Queue, RandomState>> {
        // No invariant spans a panic: nothing under the lock calls out.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane_of(&self, check: &Check) -> usize {
        let hash = check.charges().first().map_or(0, |charge| self.hasher.hash_one(&charge.key));
        usize::try_from(hash % LANES as u64).unwrap_or(0)
    }
}

/// Waits for the verdict on a check, whose keys are all in `slot`. Dropped before the check is sent, it is not sent.
pub(super) async fn submit(shared: Arc<Shared>, slot: u16, request: Request) -> Result<Verdict, Error> {
    let link = shared.link()?;
    let lane = link.batcher.lane_of(&request.check);
    let (sender, verdict) = oneshot::channel();
    let starts = {
        let mut queues = link.batcher.lock();
        let queue = queues.entry(slot).or_default();
        if queue.lanes[lane].len() >= LANE_CAPACITY {
            // Its own key's flood, and no reason to leave the others without answers.
            return Err(Error::new(ErrorKind::Unavailable, "too many checks are waiting").telling(Told::Unasked));
        }
        queue.lanes[lane].push_back(Waiting { request, verdict: sender });
        let starts = queue.in_flight < IN_FLIGHT;
        queue.in_flight += usize::from(starts);
        starts
    };
    if starts {
        tokio::spawn(drive(Flight { shared, link, slot, ended: false }));
    }
    // Without an answer the runtime that was to send the check has gone.
    let gone = |_| Error::new(ErrorKind::Unavailable, "the call was given up").charge_unknown();
    verdict.await.map_err(gone)?
}

/// The right to have a call of a slot under way; it ends also when the runtime drops the task.
struct Flight {
    shared: Arc<Shared>,
    link: Arc<Link>,
    slot: u16,
    ended: bool,
}

impl Flight {
    fn with_queue<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(self.link.batcher.lock().entry(self.slot).or_default())
    }

    /// Whether no other call is under way: nobody has just been answered.
    fn is_alone(&self) -> bool {
        self.with_queue(|queue| queue.in_flight == 1)
    }

    /// Ends if nobody waits. Under one lock, or a check that comes in between would be left waiting.
    fn end_if_idle(&mut self) -> bool {
        let mut queues = self.link.batcher.lock();
        let crowded = queues.len() > IDLE_QUEUES;
        let queue = queues.entry(self.slot).or_default();
        self.ended = queue.lanes.iter().all(VecDeque::is_empty);
        queue.in_flight -= usize::from(self.ended);
        if crowded && self.ended && queue.in_flight == 0 {
            queues.remove(&self.slot);
        }
        self.ended
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.ended {
            self.with_queue(|queue| queue.in_flight -= 1);
        }
    }
}

/// Sends batches until nobody waits.
async fn drive(mut flight: Flight) {
    let mut alone = flight.is_alone();
    loop {
        // Those who have just got their verdicts, and whoever else is ready, may put in their next checks first.
        if !std::mem::take(&mut alone) {
            tokio::task::yield_now().await;
        }
        if flight.end_if_idle() {
            return;
        }
        // First, for it may take time, and whoever gives up meanwhile need not be sent.
        let connection = flight.shared.connect(&flight.link).await;
        let batch = flight.with_queue(Queue::take_batch);
        if batch.is_empty() {
            continue;
        }
        let requests = batch.iter().map(|waiting| &waiting.request);
        let verdicts = match connection {
            Ok(connection) => flight.shared.call(connection, requests).await,
            Err(error) => Err(error),
        };
        match verdicts {
            Ok(verdicts) => {
                for (waiting, verdict) in batch.into_iter().zip(verdicts) {
                    // A caller that has gone needs no answer.
                    let _ = waiting.verdict.send(verdict);
                }
            }
            Err(error) => {
                for waiting in batch {
                    let _ = waiting.verdict.send(Err(error.clone()));
                }
            }
        }
    }
}

impl Queue {
    fn take_batch(&mut self) -> Vec<Waiting> {
        let waiting: usize = self.lanes.iter().map(VecDeque::len).sum();
        let mut batch = Vec::with_capacity(waiting.min(MAX_CHARGES));
        let mut charges = 0;
        let mut empty = 0;
        while empty < LANES {
            let turn = self.turn;
            self.turn = (turn + 1) % LANES;
            let Some(waiting) = self.lanes[turn].pop_front() else {
                empty += 1;
                continue;
            };
            empty = 0;
            if waiting.verdict.is_closed() {
                continue;
            }
            charges += waiting.request.check.charges().len();
            if charges > MAX_CHARGES && !batch.is_empty() {
                self.turn = turn;
                self.lanes[turn].push_front(waiting);
                break;
            }
            batch.push(waiting);
        }
        batch
    }
}
