//! Requests that wait at the same time share a call.
//!
//! A request is sent at once while few calls are in flight. Requests that arrive meanwhile wait, and the next call
//! takes as many of them as it can. So a lone request never waits, and a busier process sends larger batches. When full
//! batches wait, further calls start, because otherwise the round trip of a network would limit the throughput.
//!
//! On a cluster only requests of one slot may share a call. So each slot has a queue and calls of its own: a slot that
//! is hot, or whose master does not answer, delays no other slot.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{
    super::net::{error, routed::RoutedConnection},
    client::Client,
    outgoing::Request,
    per_runtime::PerRuntime,
    queue::{MAX_WAIT, Queue, Taken, Waiting},
    traffic::Traffic,
};
use crate::{
    error::{Error, ErrorKind},
    store::pending::DeadlineHandler,
    verdict::Verdict,
};

/// Number of queues above which empty ones are removed. Empty queues are kept because their slots are likely to be used
/// again; each takes a kilobyte or two.
const MAX_IDLE_QUEUES: usize = 1024;

/// Sends a request whose keys are all in `slot` and remembers a denial. The request shares a call with others, unless
/// batching is off. It is not sent if the future is dropped before its call.
pub(crate) async fn send(client: Arc<Client>, slot: u16, request: Request) -> Result<Verdict, Error> {
    if client.batching {
        return submit(client, slot, request).await;
    }
    // Boxed, because otherwise the future of each batched request would contain this large future.
    Box::pin(send_alone(client, slot, request)).await
}

/// Sends a request in a call of its own.
async fn send_alone(client: Arc<Client>, slot: u16, request: Request) -> Result<Verdict, Error> {
    let runtime = client.runtime()?;
    client.await_first_dials(&runtime.pool, &[slot], &request.outgoing.progress).await?;
    let connection = client.connect(&runtime.pool, slot).await?;
    let verdict = client.call(connection, std::iter::once(&request)).await?.swap_remove(0)?;
    request.remember(&client.denials, &verdict);
    Ok(verdict)
}

/// Adds a request to the queue of its slot, and waits for the verdict.
async fn submit(client: Arc<Client>, slot: u16, request: Request) -> Result<Verdict, Error> {
    let runtime = client.runtime()?;
    client.await_first_dials(&runtime.pool, &[slot], &request.outgoing.progress).await?;
    let lane = runtime.queues.lane_of(&request);
    let (sender, verdict) = oneshot::channel();
    let queued = {
        let mut queues = runtime.queues.lock();
        let queue = queues.entry(slot).or_default();
        let traffic = runtime.queues.traffic(slot);
        request.outgoing.progress.queued(traffic);
        if queue.has_room(lane) {
            traffic.add_check();
            queue.push(lane, Waiting { request, verdict: sender });
            let starts = queue.start_call();
            Ok((starts, starts || std::mem::replace(&mut queue.is_watched, true)))
        } else {
            Err(request)
        }
    };
    let (starts, is_watched) = match queued {
        Ok(queued) => queued,
        Err(request) => return refuse(&client, &request).await,
    };
    if starts {
        tokio::spawn(drive(CallSeries { client, runtime, slot, ended: false }));
    } else if !is_watched {
        tokio::spawn(watch(Watch { client, runtime, slot, ended: false }));
    }
    // The channel closes without a verdict only if the runtime that was to send the request has ended.
    let gone = |_| Error::new(ErrorKind::Unavailable, "the tokio runtime of the call has ended").charge_unknown();
    verdict.await.map_err(gone)?
}

/// Refuses a request whose lane is full, as soon as Redis answers other requests. A full lane then means that one key
/// is flooded, and a failure policy that admits the request would lift the key's limit. While Redis is silent, the
/// request waits for its deadline.
async fn refuse(client: &Client, request: &Request) -> Result<Verdict, Error> {
    loop {
        tokio::time::sleep(MAX_WAIT).await;
        if let Some(denial) = request.denied_since(&client.denials) {
            return Ok(denial);
        }
        if request.outgoing.progress.has_seen_answers() {
            return Err(Error::new(
                ErrorKind::Overloaded,
                "too many checks of this key, or of the sixteenth of all keys that shares its queue",
            ));
        }
    }
}

/// A series of calls of one slot, one after the other. It counts as one call in flight until it ends or is dropped,
/// also if the runtime drops its task.
struct CallSeries {
    client: Arc<Client>,
    runtime: Arc<PerRuntime>,
    slot: u16,
    ended: bool,
}

impl CallSeries {
    fn with_queue<T>(&self, work: impl FnOnce(&mut Queue) -> T) -> T {
        work(self.runtime.queues.lock().entry(self.slot).or_default())
    }

    /// Takes a batch. Its requests count as in flight until the second value is dropped.
    fn take(&self) -> (Taken, InFlight) {
        let taken = self.with_queue(|queue| queue.take(&self.client.denials));
        let in_flight = InFlight { traffic: Arc::clone(self.traffic()), checks: taken.popped };
        (taken, in_flight)
    }

    fn traffic(&self) -> &Arc<Traffic> {
        self.runtime.queues.traffic(self.slot)
    }

    /// Whether no other call of the slot is in flight. Then no caller has just been answered.
    fn is_alone(&self) -> bool {
        self.with_queue(|queue| queue.in_flight == 1)
    }

    /// Ends the series if no request waits. Tests and ends under one lock, so that no request arrives in between and is
    /// left waiting.
    fn end_if_idle(&mut self) -> bool {
        let mut queues = self.runtime.queues.lock();
        let is_crowded = queues.len() > MAX_IDLE_QUEUES;
        let queue = queues.entry(self.slot).or_default();
        self.ended = queue.is_empty();
        queue.in_flight -= usize::from(self.ended);
        if is_crowded && self.ended && queue.in_flight == 0 {
            queues.remove(&self.slot);
        }
        self.ended
    }
}

impl Drop for CallSeries {
    fn drop(&mut self) {
        if !self.ended {
            self.with_queue(|queue| queue.in_flight -= 1);
        }
    }
}

/// Requests that have left a queue and count as traffic until they are answered or given up.
struct InFlight {
    traffic: Arc<Traffic>,
    checks: usize,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.traffic.remove_checks(self.checks);
    }
}

/// Sends batches until no request waits.
async fn drive(mut series: CallSeries) {
    let mut is_alone = series.is_alone();
    loop {
        // Callers that have just been answered, and other tasks that are ready, may queue their next checks first.
        if !std::mem::take(&mut is_alone) {
            tokio::task::yield_now().await;
        }
        if series.end_if_idle() {
            return;
        }
        // Connects before the batch is taken: a dial takes time, and a request whose caller leaves meanwhile is not
        // sent.
        let connection = series.client.connect(&series.runtime.pool, series.slot).await;
        let (Taken { batch, denied, .. }, _in_flight) = series.take();
        for (waiting, denial) in denied {
            let _ = waiting.verdict.send(Ok(denial));
        }
        if batch.is_empty() {
            continue;
        }
        let requests = batch.iter().map(|waiting| &waiting.request);
        let verdicts = match &connection {
            Ok(connection) => series.client.call(connection.clone(), requests).await,
            Err(error) => Err(error.clone()),
        };
        match verdicts {
            Ok(verdicts) => {
                series.traffic().answered();
                batch.into_iter().zip(verdicts).for_each(|(waiting, verdict)| waiting.answer(&series.client, verdict));
            }
            Err(error) if error::is_about_several_keys(&error) && batch.len() > 1 => {
                for waiting in batch {
                    tokio::spawn(call_alone(Arc::clone(&series.client), connection.clone(), waiting));
                }
            }
            Err(error) => {
                for waiting in batch {
                    // The checks of a late batch may be late for different reasons.
                    let error = match error.kind() {
                        ErrorKind::Deadline => waiting.request.outgoing.progress.error(series.client.settings.deadline),
                        _ => error.clone(),
                    };
                    waiting.answer(&series.client, Err(error));
                }
            }
        }
    }
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

/// Sends one request of a batch that Redis has refused because of its many keys.
async fn call_alone(client: Arc<Client>, connection: Result<RoutedConnection, Error>, waiting: Waiting) {
    if waiting.verdict.is_closed() {
        return;
    }
    let request = std::iter::once(&waiting.request);
    let called = async { client.call(connection?, request).await?.swap_remove(0) };
    let verdict = called.await;
    waiting.answer(&client, verdict);
}

/// Watches the requests that wait in a slot. Ends when it is dropped, also when the runtime drops its task.
struct Watch {
    client: Arc<Client>,
    runtime: Arc<PerRuntime>,
    slot: u16,
    ended: bool,
}

impl Watch {
    /// Returns whether a call has to start. Ends if no request waits, under one lock as in [`CallSeries::end_if_idle`].
    fn start_late_call(&mut self) -> bool {
        let mut queues = self.runtime.queues.lock();
        let queue = queues.get_mut(&self.slot).filter(|queue| !queue.is_empty());
        let starts = queue.map(Queue::start_late_call);
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
            && let Some(queue) = self.runtime.queues.lock().get_mut(&self.slot)
        {
            queue.is_watched = false;
        }
    }
}

/// Starts calls while requests wait and no call has started for [`MAX_WAIT`].
async fn watch(mut watch: Watch) {
    while !watch.ended {
        tokio::time::sleep(MAX_WAIT).await;
        if watch.start_late_call() {
            let Watch { client, runtime, slot, .. } = &watch;
            tokio::spawn(drive(CallSeries {
                client: client.clone(),
                runtime: runtime.clone(),
                slot: *slot,
                ended: false,
            }));
        }
    }
}
