//! A call with one request, which the task of its caller drives: no other task has to run before the request is sent.

use std::{
    future::Future,
    iter::once,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

use super::{
    outgoing::{Outgoing, Request},
    series::{CallSeries, drive, error_of},
};
use crate::{error::Error, verdict::Verdict};

/// A call with one request.
///
/// If it is dropped while it waits for the reply, a task waits instead: the reply may be a denial to remember, and a
/// connection without replies has to be replaced. If it is dropped earlier, the request is not sent.
pub(super) struct LoneCall {
    /// `None` after the end.
    call: Option<Call>,
    outgoing: Arc<Outgoing>,
    /// The runtime to which the connection belongs. The caller may be polled elsewhere.
    runtime: Handle,
}

type Call = Pin<Box<dyn Future<Output = (Result<Verdict, Error>, CallSeries)> + Send>>;

impl LoneCall {
    /// Starts on the current runtime. The call of `series` is counted already.
    pub(super) fn new(series: CallSeries, request: Request) -> Self {
        let outgoing = Arc::clone(&request.outgoing);
        Self { call: Some(Box::pin(call(series, request))), outgoing, runtime: Handle::current() }
    }
}

/// Connects and calls.
async fn call(series: CallSeries, request: Request) -> (Result<Verdict, Error>, CallSeries) {
    let _in_flight = series.in_flight(1);
    let called = async {
        let connection = series.client.connect(&series.runtime.pool, series.slot).await?;
        let mut verdicts = series.client.call(connection, once(&request)).await?;
        series.traffic().answered();
        verdicts.swap_remove(0)
    };
    let result = called.await.map_err(|error| error_of(&request, &series.client, error));
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
        let call = self.call.as_mut().expect("a future is not polled after its end");
        let (result, mut series) = ready!(call.as_mut().poll(cx));
        self.call = None;
        if series.begin() {
            self.runtime.spawn(drive(series));
        }
        Poll::Ready(result)
    }
}

impl Drop for LoneCall {
    fn drop(&mut self) {
        if let Some(call) = self.call.take()
            && self.outgoing.progress.is_in_flight()
        {
            self.runtime.spawn(call_and_continue(call));
        }
    }
}
