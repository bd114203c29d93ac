//! A call with one request, which the task of its caller drives: no other task has to run before the request is sent.

use std::{
    future::Future,
    iter::once,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

use super::{
    super::net::routed::RoutedConnection,
    outgoing::Request,
    series::{CallSeries, drive, error_of},
};
use crate::{error::Error, verdict::Verdict};

/// A call with one request. The first poll sends the request.
///
/// If it is dropped before the reply has come, a task waits instead: the reply may be a denial to remember, and a
/// connection without replies has to be replaced.
pub(super) struct LoneCall {
    /// `None` after the end.
    call: Option<Call>,
    /// The runtime to which the connection belongs. The caller may be polled on another one, or on none.
    runtime: Handle,
}

type Call = Pin<Box<dyn Future<Output = (Result<Verdict, Error>, CallSeries)> + Send>>;

impl LoneCall {
    /// Starts on the current runtime. The call of `series` is counted already.
    pub(super) fn new(series: CallSeries, connection: RoutedConnection, request: Request) -> Self {
        Self { call: Some(Box::pin(call(series, connection, request))), runtime: Handle::current() }
    }
}

async fn call(
    series: CallSeries,
    connection: RoutedConnection,
    request: Request,
) -> (Result<Verdict, Error>, CallSeries) {
    let _in_flight = series.in_flight(1);
    let result = match series.client.call(connection, once(&request)).await {
        Ok(mut verdicts) => {
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
        let Self { call, runtime } = &mut *self;
        let _entered = runtime.enter();
        let running = call.as_mut().expect("a future is not polled after its end");
        let (result, mut series) = ready!(running.as_mut().poll(cx));
        *call = None;
        if !series.end_if_idle() {
            runtime.spawn(drive(series));
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
