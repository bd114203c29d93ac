//! A call with one request, which the task of its caller drives: no other task has to run before the request is sent.

use std::{
    future::Future,
    iter::once,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

use super::{
    super::net::routed::RoutedConnection,
    outgoing::Request,
    series::{CallSeries, InFlight, drive, error_of},
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
