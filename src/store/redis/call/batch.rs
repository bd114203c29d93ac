//! Requests that wait at the same time share a call.
//!
//! A request is sent at once while few calls are in flight. If none is, and a connection is open, its caller's task
//! sends it. Requests that arrive meanwhile wait, and the next call takes as many of them as it can. So a lone request
//! never waits, and a busier process sends larger batches. Over a network, further calls start until they fill
//! the way (`pace.rs`), and wherever full batches wait, because otherwise the round trip would limit the throughput.
//!
//! On a cluster only requests of one slot may share a call. So each slot has a queue and calls of its own: a slot that
//! is hot, or whose master does not answer, delays no other slot by more than a few milliseconds.

use std::task::{Context, Poll};
use std::{future::Future, iter::once, pin::Pin, sync::Arc};

use tokio::{runtime::Handle, sync::oneshot};

use super::queue::{MAX_WAIT, Queue, Waiting};
use super::series::{CallSeries, InFlight, drive, error_of};
use super::{PerRuntime, client::Client, outgoing::Request, pace::PacedCall};
use crate::error::{Error, ErrorKind};
use crate::{store::redis::net::routed::RoutedConnection, verdict::Verdict};

/// Sends a request whose keys are all in `slot` and remembers a denial. The request shares a call with others, unless
/// batching is off, or the request is for one key of a slot that moves: its node refuses calls with several such keys.
/// It is not sent if the future is dropped before its call.
pub(crate) async fn send(client: Arc<Client>, slot: u16, request: Request) -> Result<Verdict, Error> {
    if client.batching && !request.step.is_alone() {
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

/// A request that was sent or queued.
enum Submitted {
    /// The caller's task sends the request.
    Alone(LoneCall),
    /// The request waits in its queue.
    Queued(oneshot::Receiver<Result<Verdict, Error>>),
    /// The request's lane is full.
    Refused(Request),
}

/// Sends a request at once, or adds it to the queue of its slot, and waits for the verdict.
async fn submit(client: Arc<Client>, slot: u16, request: Request) -> Result<Verdict, Error> {
    let runtime = client.runtime()?;
    let handle = Handle::current();
    client.await_first_dials(&runtime.pool, &[slot], &request.outgoing.progress).await?;
    match enqueue(&client, &runtime, &handle, slot, request) {
        Submitted::Alone(call) => call.await,
        Submitted::Queued(verdict) => {
            // The channel closes without a verdict only if the runtime that was to send the request has ended, or an
            // observer has panicked.
            let gone =
                |_| Error::new(ErrorKind::Unavailable, "the tokio runtime of the call has ended").charge_unknown();
            verdict.await.map_err(gone)?
        }
        Submitted::Refused(request) => refuse(&client, &request).await,
    }
}

/// Adds a request to the queue of its slot, unless no other request is there and a connection is open.
fn enqueue(client: &Arc<Client>, runtime: &Arc<PerRuntime>, handle: &Handle, slot: u16, request: Request) -> Submitted {
    // The caller may be polled on another runtime than at first.
    let _entered = handle.enter();
    let lane = runtime.queues.lane_of(&request);
    let traffic = runtime.queues.traffic(slot);
    let mut queues = runtime.queues.lock();
    let queue = queues.entry(slot).or_default();
    request.outgoing.progress.queued(traffic);
    if !queue.has_room(lane) {
        return Submitted::Refused(request);
    }
    // With more checks than slots, a call of one request would rarely be alone at its server.
    let is_quiet = traffic.checks() < client.keys.slot_count();
    traffic.add_check();
    let (sender, verdict) = oneshot::channel();
    if is_quiet && queue.start_lone_call() {
        drop(queues);
        let series = CallSeries::new(Arc::clone(client), Arc::clone(runtime), slot);
        match runtime.pool.open_connection(slot) {
            Some(connection) => return Submitted::Alone(LoneCall::new(series, connection, request, handle.clone())),
            None => series.continue_with(lane, Waiting { request, verdict: sender }),
        }
    } else {
        queue.push(lane, Waiting { request, verdict: sender });
        let starts_call = queue.start_call(traffic.pace());
        let starts_watch = !starts_call && !std::mem::replace(&mut queue.is_watched, true);
        drop(queues);
        if starts_call {
            CallSeries::start(client, runtime, slot);
        } else if starts_watch {
            Watch::start(Arc::clone(client), Arc::clone(runtime), slot);
        }
    }
    Submitted::Queued(verdict)
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

/// A call with one request. The first poll sends the request.
///
/// If it is dropped before the reply has come, a task waits instead: the reply may be a denial to remember, and a
/// connection without replies has to be replaced.
struct LoneCall {
    /// `None` after the end.
    call: Option<Call>,
    /// The runtime to which the connection belongs. The caller may be polled on another one, or on none.
    runtime: Handle,
}

type Call = Pin<Box<dyn Future<Output = (Result<Verdict, Error>, CallSeries)> + Send>>;

impl LoneCall {
    /// The call of `series` is counted already. `runtime` is the runtime of the series.
    pub(super) fn new(series: CallSeries, connection: RoutedConnection, request: Request, runtime: Handle) -> Self {
        let checks = series.in_flight(1);
        Self { call: Some(Box::pin(call(series, checks, connection, request))), runtime }
    }
}

async fn call(
    series: CallSeries,
    _checks: InFlight,
    connection: RoutedConnection,
    request: Request,
) -> (Result<Verdict, Error>, CallSeries) {
    let paced = PacedCall::new(series.traffic().pace(), request.len());
    series.traffic().sends_over(&connection);
    let result = match series.client.call(connection, once(&request)).await {
        Ok(mut verdicts) => {
            paced.answered();
            series.traffic().answered();
            verdicts.swap_remove(0)
        }
        Err(error) => Err(error_of(&request, &series.client, error)),
    };
    if let Ok(verdict) = &result {
        request.remember(&series.client.denials, verdict);
    }
    (result, series)
}

/// Continues with the requests that have been queued meanwhile.
async fn call_and_continue(call: Call) {
    let (_, series) = call.await;
    drive(series).await;
}

impl Future for LoneCall {
    type Output = Result<Verdict, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out, because a call that panics must not be polled again.
        let mut call = self.call.take().expect("a future is not polled after its end");
        let polled = {
            let _entered = self.runtime.enter();
            call.as_mut().poll(cx)
        };
        let Poll::Ready((result, mut series)) = polled else {
            self.call = Some(call);
            return Poll::Pending;
        };
        if !series.end_if_idle() {
            self.runtime.spawn(drive(series));
        }
        Poll::Ready(result)
    }
}

impl Drop for LoneCall {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(call_and_continue(call));
        }
    }
}

/// Watches the requests that wait in a slot. When it is dropped, also by a runtime that shuts down, the slot counts as
/// not watched.
pub(super) struct Watch {
    client: Arc<Client>,
    runtime: Arc<PerRuntime>,
    slot: u16,
    ended: bool,
}

impl Watch {
    /// Starts to watch a slot whose queue is marked as watched.
    pub(super) fn start(client: Arc<Client>, runtime: Arc<PerRuntime>, slot: u16) {
        tokio::spawn(watch(Self { client, runtime, slot, ended: false }));
    }

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
            CallSeries::start(&watch.client, &watch.runtime, watch.slot);
        }
    }
}
