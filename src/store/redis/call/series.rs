//! The calls of a slot.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::sync::OwnedSemaphorePermit;

use super::super::net::{error, routed::RoutedConnection};
use super::queue::{MAX_WAIT, Queue, Taken, Waiting};
use super::{PerRuntime, client::Client, outgoing::Request, pace::PacedCall, traffic::Traffic};
use crate::error::{Error, ErrorKind};
use crate::{runtime::deadline::within, store::contract::DeadlineHandler, verdict::Verdict};

/// Number of queues above which empty ones are removed. Empty queues are kept because their slots are likely to be used
/// again; each takes a kilobyte or two.
const MAX_IDLE_QUEUES: usize = 1024;
/// The longest time that a call keeps its turn. Redis has evaluated a call much earlier, so a longer time is that of
/// the network, and other calls need not wait for it.
const MAX_TURN: Duration = Duration::from_millis(1);

/// A series of calls of one slot, one after the other. It counts as one call in flight until it ends or is dropped,
/// also if the runtime drops its task.
pub(super) struct CallSeries {
    pub(super) client: Arc<Client>,
    runtime: Arc<PerRuntime>,
    slot: u16,
    stage: Stage,
}

/// How far the current call of a series is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The call counts as one in flight, from its start to its reply.
    Running,
    /// The same, and the call waits for its turn at the master.
    AwaitingTurn,
    /// The series has ended.
    Ended,
}

impl CallSeries {
    /// A series whose first call is counted already.
    pub(super) fn new(client: Arc<Client>, runtime: Arc<PerRuntime>, slot: u16) -> Self {
        Self { client, runtime, slot, stage: Stage::Running }
    }

    /// Starts a series whose first call is counted already.
    pub(super) fn start(client: &Arc<Client>, runtime: &Arc<PerRuntime>, slot: u16) {
        let (client, runtime) = (Arc::clone(client), Arc::clone(runtime));
        tokio::spawn(drive(Self::new(client, runtime, slot)));
    }

    /// Adds a request and starts the series, whose first call is counted already.
    pub(super) fn continue_with(self, lane: usize, waiting: Waiting) {
        self.with_queue(|queue| queue.push(lane, waiting));
        tokio::spawn(drive(self));
    }

    fn with_queue<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(self.runtime.queues.lock().entry(self.slot).or_default())
    }

    /// Waits for a turn at the master, while other calls to it are in flight: it evaluates the calls of all its slots
    /// one after the other, and meanwhile more requests can join each of them. Unless there are more checks than slots,
    /// hardly any two would share a call, so none waits. Nor does one over a long way, which has room for all of them.
    async fn turn(&mut self, connection: &Result<RoutedConnection, Error>) -> Option<OwnedSemaphorePermit> {
        let connection = connection.as_ref().ok()?;
        let is_busy = self.traffic().checks() > self.client.keys.slot_count();
        if !is_busy || self.traffic().pace().is_far() || !self.with_queue(Queue::await_turn) {
            return None;
        }
        self.stage = Stage::AwaitingTurn;
        within(MAX_WAIT, connection.turn()).await.flatten()
    }

    /// Takes a batch, and starts a further call if the rest needs one. The requests of the batch count as in flight
    /// until the second value is dropped.
    fn take(&mut self) -> (Taken, InFlight) {
        let awaited_turn = std::mem::replace(&mut self.stage, Stage::Running) == Stage::AwaitingTurn;
        let (taken, starts) = self.with_queue(|queue| {
            queue.awaiting_turn -= usize::from(awaited_turn);
            (queue.take(&self.client.denials), queue.start_call(self.traffic().pace()))
        });
        if starts {
            Self::start(&self.client, &self.runtime, self.slot);
        }
        let in_flight = self.in_flight(taken.popped);
        (taken, in_flight)
    }

    /// Checks that have left the queue, which count as in flight until the value is dropped.
    pub(super) fn in_flight(&self, checks: usize) -> InFlight {
        InFlight { traffic: Arc::clone(self.traffic()), checks }
    }

    pub(super) fn traffic(&self) -> &Arc<Traffic> {
        self.runtime.queues.traffic(self.slot)
    }

    /// Whether no other call of the slot is in flight. Then no caller has just been answered.
    fn is_alone(&self) -> bool {
        self.with_queue(|queue| queue.in_flight == 1)
    }

    /// Ends the series if no request needs a further call. Tests and ends under one lock, so that no request arrives in
    /// between and is left waiting.
    pub(super) fn end_if_idle(&mut self) -> bool {
        let mut queues = self.runtime.queues.lock();
        let is_crowded = queues.len() > MAX_IDLE_QUEUES;
        let queue = queues.entry(self.slot).or_default();
        if !queue.will_be_taken() {
            return false;
        }
        self.stage = Stage::Ended;
        queue.in_flight -= 1;
        if is_crowded && queue.in_flight == 0 {
            queues.remove(&self.slot);
        }
        true
    }
}

impl Drop for CallSeries {
    fn drop(&mut self) {
        if self.stage != Stage::Ended {
            self.with_queue(|queue| {
                queue.in_flight -= 1;
                queue.awaiting_turn -= usize::from(self.stage == Stage::AwaitingTurn);
            });
        }
    }
}

/// Requests that have left a queue and count as traffic until they are answered or given up.
pub(super) struct InFlight {
    traffic: Arc<Traffic>,
    checks: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.traffic.remove_checks(self.checks);
    }
}

/// Sends batches until no request waits.
pub(super) async fn drive(mut series: CallSeries) {
    let mut may_gain = !series.is_alone();
    loop {
        // Callers that have just been answered, and other tasks that are ready, may queue their next checks first. Not
        // after a batch of one: the wait would cost that caller more than a new call.
        if may_gain {
            tokio::task::yield_now().await;
        }
        if series.end_if_idle() {
            return;
        }
        // Connects before the batch is taken: a dial takes time, and a request whose caller leaves meanwhile is not
        // sent.
        let awaits_connection = series.traffic().awaits_connection();
        let connection = series.client.connect(&series.runtime.pool, series.slot).await;
        drop(awaits_connection);
        let turn = series.turn(&connection).await;
        let (Taken { batch, denied, .. }, _in_flight) = series.take();
        for (waiting, denial) in denied {
            let _ = waiting.verdict.send(Ok(denial));
        }
        may_gain = batch.len() > 1;
        if batch.is_empty() {
            continue;
        }
        let requests = batch.iter().map(|waiting| &waiting.request);
        let paced = PacedCall::new(series.traffic().pace(), requests.clone().map(Request::len).sum());
        let verdicts = match &connection {
            Ok(connection) => {
                series.traffic().sends_over(connection);
                holding(turn, series.client.call(connection.clone(), requests)).await
            }
            Err(error) => Err(error.clone()),
        };
        match verdicts {
            Ok(verdicts) => {
                series.traffic().answered();
                paced.answered();
                let has_others = batch.len() > 1;
                for (waiting, verdict) in batch.into_iter().zip(verdicts) {
                    match verdict {
                        // An earlier check of the call has removed a key of this one while their slot moves.
                        Err(error) if has_others && error::is_about_several_keys(&error) => {
                            tokio::spawn(call_alone(Arc::clone(&series.client), connection.clone(), waiting));
                        }
                        verdict => waiting.answer(&series.client, verdict),
                    }
                }
            }
            Err(error) if error::is_about_several_keys(&error) && batch.len() > 1 => {
                for waiting in batch {
                    tokio::spawn(call_alone(Arc::clone(&series.client), connection.clone(), waiting));
                }
            }
            Err(error) => {
                for waiting in batch {
                    let error = error_of(&waiting.request, &series.client, error.clone());
                    waiting.answer(&series.client, Err(error));
                }
            }
        }
    }
}

/// The error of a request whose call has failed. The checks of a late batch may be late for different reasons.
pub(super) fn error_of(request: &Request, client: &Client, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Deadline => request.outgoing.progress.error(client.settings.deadline),
        _ => error,
    }
}

/// The output of `call`, which keeps its turn for [`MAX_TURN`] at most.
async fn holding<T>(turn: Option<OwnedSemaphorePermit>, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    if let Some(turn) = turn {
        if let Some(output) = within(MAX_TURN, call.as_mut()).await {
            return output;
        }
        drop(turn);
    }
    call.await
}

impl Waiting {
    /// Sends the verdict to the caller, and remembers a denial.
    fn answer(self, client: &Client, verdict: Result<Verdict, Error>) {
        if let Ok(verdict) = &verdict {
            self.request.remember(&client.denials, verdict);
        }
        // Fails if the caller has gone and needs no answer.
        let _ = self.verdict.send(verdict);
    }
}

/// Sends one request of a batch that Redis has refused, or whose other requests it has answered, because of its keys.
async fn call_alone(client: Arc<Client>, connection: Result<RoutedConnection, Error>, waiting: Waiting) {
    if waiting.verdict.is_closed() {
        return;
    }
    let request = std::iter::once(&waiting.request);
    let called = async { client.call(connection?, request).await?.swap_remove(0) };
    let verdict = called.await;
    waiting.answer(&client, verdict);
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::{
        sync::Semaphore,
        time::{Instant, sleep},
    };

    use super::*;
    use crate::RedisStore;

    /// A client on this runtime, which has not dialled.
    fn client() -> (Arc<Client>, Arc<PerRuntime>) {
        let client = Arc::clone(&RedisStore::open("redis://127.0.0.1:1").unwrap().inner.client);
        let runtime = client.runtime().unwrap();
        (client, runtime)
    }

    #[tokio::test]
    async fn of_many_queues_one_is_removed_when_its_last_call_ends_and_not_earlier() {
        let (client, runtime) = client();
        for (queues, in_flight, is_removed) in
            [(MAX_IDLE_QUEUES, 1, false), (MAX_IDLE_QUEUES + 1, 1, true), (MAX_IDLE_QUEUES + 1, 2, false)]
        {
            let mut by_slot = runtime.queues.lock();
            for slot in (0_u16..).take(queues) {
                by_slot.entry(slot).or_default().in_flight = in_flight;
            }
            drop(by_slot);
            assert!(CallSeries::new(Arc::clone(&client), Arc::clone(&runtime), 0).end_if_idle());
            let left = runtime.queues.lock().get(&0).map(|queue| queue.in_flight);
            assert_eq!(left, (!is_removed).then_some(in_flight - 1), "{queues} {in_flight}");
        }
    }

    #[tokio::test]
    async fn a_series_that_is_given_up_is_no_call_in_flight_and_awaits_no_turn() {
        let (client, runtime) = client();
        for (stage, left) in [(Stage::Running, (1, 1)), (Stage::AwaitingTurn, (1, 0)), (Stage::Ended, (2, 1))] {
            let series = CallSeries { client: Arc::clone(&client), runtime: Arc::clone(&runtime), slot: 0, stage };
            series.with_queue(|queue| (queue.in_flight, queue.awaiting_turn) = (2, 1));
            drop(series);
            let counted = runtime.queues.lock().get(&0).map(|queue| (queue.in_flight, queue.awaiting_turn));
            assert_eq!(counted, Some(left), "{stage:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_keeps_its_turn_until_its_reply_and_not_longer_than_the_limit() {
        let turns = Arc::new(Semaphore::new(1));
        let turn = || Arc::clone(&turns).try_acquire_owned().ok();
        holding(turn(), ready(())).await;
        assert_eq!(turns.available_permits(), 1);

        let start = Instant::now();
        let next = async { turns.acquire().await.map(|_| start.elapsed()).unwrap() };
        let (waited, ()) = tokio::join!(next, holding(turn(), sleep(MAX_TURN * 10_000)));
        // A stall of the machine during the turn does not count, so the turn may last longer by it.
        assert!((MAX_TURN..MAX_TURN * 1_000).contains(&waited), "{waited:?}");
        assert!(start.elapsed() >= MAX_TURN * 10_000);
    }
}
