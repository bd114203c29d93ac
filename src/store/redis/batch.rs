//! Checks that wait at the same time travel in one call.
//!
//! A check leaves at once while few calls are under way. What comes in meanwhile waits and leaves together with the
//! next call. So a lone check never waits, and the busier the process, the larger the batches. When full batches wait,
//! further calls start: over a network a round trip must not bound the throughput.
//!
//! On a cluster only checks of one slot may share a call. So each slot has a queue and calls of its own: one that is
//! hot, or whose master does not answer, holds up no other.

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::{
    connection::Connection,
    error,
    progress::Traffic,
    protocol::Request,
    queue::{LANES, LONGEST_REST, Queue, Taken, Waiting},
    shared::{Link, Original, Shared},
};
use crate::{
    check::Check,
    error::{Error, ErrorKind},
    store::GiveUp,
    verdict::Verdict,
};

/// The slot of all keys where there are no slots.
pub(super) const WHOLE: u16 = 0;
/// Of a cluster.
pub(super) const SLOTS: u16 = 16_384;
/// Empty queues that are kept, because their slots are likely to be used again: a kilobyte or two each.
const IDLE_QUEUES: usize = 1024;

#[derive(Debug)]
pub(super) struct Batcher {
    /// By slot.
    queues: Mutex<HashMap<u16, Queue, RandomState>>,
    hasher: RandomState,
    /// By part: one part of a cluster may be silent while others answer.
    traffic: Box<[Arc<Traffic>]>,
}

impl Batcher {
    /// For a store whose slots are divided into `parts` parts.
    pub(super) fn new(parts: usize) -> Self {
        let checks = Arc::default();
        let traffic = |_| Arc::new(Traffic::with(Arc::clone(&checks)));
        let traffic = (0..parts).map(traffic).collect();
        Self { queues: Mutex::default(), hasher: RandomState::default(), traffic }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, Queue, RandomState>> {
        // No invariant spans a panic: nothing under the lock calls out.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn traffic(&self, slot: u16) -> &Arc<Traffic> {
        &self.traffic[part(slot, self.traffic.len())]
    }

    fn lane_of(&self, check: &Check) -> usize {
        let hash = check.charges().first().map_or(0, |charge| self.hasher.hash_one(&charge.key));
        usize::try_from(hash % LANES as u64).unwrap_or(0)
    }
}

/// The part that a slot belongs to if neighbouring slots are divided into `parts` parts.
pub(super) fn part(slot: u16, parts: usize) -> usize {
    usize::from(slot) * parts / usize::from(SLOTS)
}

/// Waits for the verdict on a check, whose keys are all in `slot`. Dropped before the check is sent, it is not sent.
pub(super) async fn submit(
    shared: Arc<Shared>,
    slot: u16,
    request: Request,
    original: Option<Box<Original>>,
) -> Result<Verdict, Error> {
    let link = shared.link()?;
    shared.first_connection(&link, &[slot], &request.progress).await?;
    let lane = link.batcher.lane_of(&request.check);
    let (sender, verdict) = oneshot::channel();
    let entered = {
        let mut queues = link.batcher.lock();
        let queue = queues.entry(slot).or_default();
        let traffic = link.batcher.traffic(slot);
        request.progress.queued(traffic);
        if queue.has_room(lane) {
            traffic.checks.fetch_add(1, Ordering::Relaxed);
            queue.push(lane, Waiting { request, original, verdict: sender });
            let starts = queue.starts();
            Ok((starts, starts || std::mem::replace(&mut queue.is_watched, true)))
        } else {
            Err((request, original))
        }
    };
    let (starts, is_watched) = match entered {
        Ok(entered) => entered,
        Err((request, original)) => return refuse(&shared, &request, original.as_deref()).await,
    };
    if starts {
        tokio::spawn(drive(Flight { shared, link, slot, ended: false }));
    } else if !is_watched {
        tokio::spawn(watch(Watch { shared, link, slot, ended: false }));
    }
    // Without an answer the runtime that was to send the check has gone.
    let gone = |_| Error::new(ErrorKind::Unavailable, "the call was given up").charge_unknown();
    verdict.await.map_err(gone)?
}

/// Refuses a check whose lane is full, as soon as Redis answers others: then it is the flood of one key, and letting it
/// pass would lift its limit. While Redis is silent, the check waits for its deadline.
async fn refuse(shared: &Shared, request: &Request, original: Option<&Original>) -> Result<Verdict, Error> {
    loop {
        tokio::time::sleep(LONGEST_REST).await;
        if let Some(denial) = original.and_then(|original| shared.denied_since(original)) {
            return Ok(denial);
        }
        if request.progress.has_seen_answers() {
            return Err(Error::new(ErrorKind::Overloaded, "too many checks of one key, or of a sixteenth of the keys"));
        }
    }
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

    /// Takes a batch, whose checks are under way until the other value is dropped.
    fn take(&self) -> (Taken, UnderWay) {
        let taken = self.with_queue(|queue| queue.take(&self.shared));
        let under_way = UnderWay { traffic: Arc::clone(self.traffic()), checks: taken.popped };
        (taken, under_way)
    }

    fn traffic(&self) -> &Arc<Traffic> {
        self.link.batcher.traffic(self.slot)
    }

    /// Whether no other call is under way: then no caller has just been answered.
    fn is_alone(&self) -> bool {
        self.with_queue(|queue| queue.in_flight == 1)
    }

    /// Ends if no check waits. Under one lock, or a check that comes in between would be left waiting.
    fn end_if_idle(&mut self) -> bool {
        let mut queues = self.link.batcher.lock();
        let crowded = queues.len() > IDLE_QUEUES;
        let queue = queues.entry(self.slot).or_default();
        self.ended = queue.is_empty();
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

/// Checks that have left a queue and are counted until they have their answers, or their call is given up.
struct UnderWay {
    traffic: Arc<Traffic>,
    checks: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.traffic.checks.fetch_sub(self.checks, Ordering::Relaxed);
    }
}

/// Sends batches until no check waits.
async fn drive(mut flight: Flight) {
    let mut alone = flight.is_alone();
    loop {
        // Callers that have just got their verdicts, and others that are ready, may put in their next checks first.
        if !std::mem::take(&mut alone) {
            tokio::task::yield_now().await;
        }
        if flight.end_if_idle() {
            return;
        }
        // Before the batch is taken: it may take time, and a check whose caller gives up meanwhile need not be sent.
        let connection = flight.shared.connect(&flight.link, flight.slot).await;
        let (Taken { batch, denied, .. }, _under_way) = flight.take();
        for (waiting, denial) in denied {
            let _ = waiting.verdict.send(Ok(denial));
        }
        if batch.is_empty() {
            continue;
        }
        let requests = batch.iter().map(|waiting| &waiting.request);
        let verdicts = match &connection {
            Ok(connection) => flight.shared.call(connection.clone(), requests).await,
            Err(error) => Err(error.clone()),
        };
        match verdicts {
            Ok(verdicts) => {
                flight.traffic().answered();
                batch.into_iter().zip(verdicts).for_each(|(waiting, verdict)| waiting.answer(&flight.shared, verdict));
            }
            Err(error) if error::is_about_several_keys(&error) && batch.len() > 1 => {
                for waiting in batch {
                    tokio::spawn(call_alone(Arc::clone(&flight.shared), connection.clone(), waiting));
                }
            }
            Err(error) => {
                for waiting in batch {
                    // Each of them may have been late for another reason.
                    let error = match error.kind() {
                        ErrorKind::Deadline => waiting.request.progress.error(flight.shared.deadline),
                        _ => error.clone(),
                    };
                    waiting.answer(&flight.shared, Err(error));
                }
            }
        }
    }
}

impl Waiting {
    fn answer(self, shared: &Shared, verdict: Result<Verdict, Error>) {
        if let (Some(original), Ok(verdict)) = (self.original, &verdict) {
            shared.remember(&original, verdict);
        }
        // A caller that has gone needs no answer.
        let _ = self.verdict.send(verdict);
    }
}

/// Sends one check of a batch that Redis has refused because of its many keys.
async fn call_alone(shared: Arc<Shared>, connection: Result<Connection, Error>, waiting: Waiting) {
    if waiting.verdict.is_closed() {
        return;
    }
    let request = std::iter::once(&waiting.request);
    let called = async { shared.call(connection?, request).await?.swap_remove(0) };
    let verdict = called.await;
    waiting.answer(&shared, verdict);
}

/// The duty to look after the checks that wait in a slot; it ends also when the runtime drops the task.
struct Watch {
    shared: Arc<Shared>,
    link: Arc<Link>,
    slot: u16,
    ended: bool,
}

impl Watch {
    /// Whether a call is to start. Ends if no check waits: under one lock, as in [`Flight::end_if_idle`].
    fn look(&mut self) -> bool {
        let mut queues = self.link.batcher.lock();
        let queue = queues.get_mut(&self.slot).filter(|queue| !queue.is_empty());
        let starts = queue.map(Queue::starts_late);
        self.ended = starts.is_none();
        if let (true, Some(queue)) = (self.ended, queues.get_mut(&self.slot)) {
            queue.is_watched = false;
        }
        starts.unwrap_or(false)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.ended
            && let Some(queue) = self.link.batcher.lock().get_mut(&self.slot)
        {
            queue.is_watched = false;
        }
    }
}

/// Starts calls while checks wait and none has started for a while.
async fn watch(mut watch: Watch) {
    while !watch.ended {
        tokio::time::sleep(LONGEST_REST).await;
        if watch.look() {
            let Watch { shared, link, slot, .. } = &watch;
            tokio::spawn(drive(Flight { shared: shared.clone(), link: link.clone(), slot: *slot, ended: false }));
        }
    }
}
