//! Futures that are ready at once, polled once: no runtime in the measurement.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

/// The result of a future that does not wait, or `None` if it does.
pub fn once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}
