//! The task of one look-up.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use tokio::sync::oneshot;

use super::{answer::Answer, source::LookUp};
use crate::runtime::{deadline::within, drivers::Driver};

/// Settles a look-up exactly once. A ticket that is dropped before, for example because the runtime of the task has
/// ended, settles it as cancelled.
pub(super) struct Ticket<F: FnOnce(Answer)> {
    settle: Option<F>,
}

impl<F: FnOnce(Answer)> Ticket<F> {
    pub(super) fn new(settle: F) -> Self {
        Self { settle: Some(settle) }
    }

    fn settle(&mut self, answer: Answer) {
        if let Some(settle) = self.settle.take() {
            settle(answer);
        }
    }
}

impl<F: FnOnce(Answer)> Drop for Ticket<F> {
    fn drop(&mut self) {
        self.settle(Answer::Cancelled);
    }
}

/// Waits until the source has answered, `timeout` is over, or the sender of `cancelled` is dropped.
pub(super) async fn run<F: FnOnce(Answer)>(
    look_up: LookUp,
    timeout: Duration,
    mut ticket: Ticket<F>,
    mut cancelled: oneshot::Receiver<()>,
) {
    // Dropped before the look-up is settled, so that a look-up whose slot is free holds no connection.
    let answer = {
        let mut answer = pin!(answer(look_up, timeout));
        poll_fn(|cx| match Pin::new(&mut cancelled).poll(cx) {
            Poll::Ready(_) => Poll::Ready(Answer::Cancelled),
            Poll::Pending => answer.as_mut().poll(cx),
        })
        .await
    };
    ticket.settle(answer);
}

async fn answer(look_up: LookUp, timeout: Duration) -> Answer {
    let answer = catch(look_up);
    // Without timers, a look-up that hangs stays until it is overdue.
    if !Driver::Timers.is_there() {
        return answer.await;
    }
    within(timeout, answer).await.unwrap_or(Answer::TimedOut)
}

/// The answer of the source, or that it has panicked.
async fn catch(mut look_up: LookUp) -> Answer {
    // After a panic the future is not polled again.
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| look_up.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Answer::Source),
        Err(_) => Poll::Ready(Answer::Panicked),
    })
    .await
}
