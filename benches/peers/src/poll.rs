//! Polls a future without a runtime, so that no runtime is part of the measurement.

use std::task::{Context, Poll, Waker};
use std::{future::Future, pin::pin};

/// The output of a future that is ready at its first poll, otherwise `None`.
pub fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
