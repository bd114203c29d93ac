//! Callers that go away before their answer: after some time, or after some polls.

use std::future::{Future, poll_fn};
use std::{pin::pin, task::Poll};

use crate::{random::Rng, time::ms};

/// The longest time after which a caller leaves who is not answered at once, in milliseconds.
pub(super) const HURRY: u64 = 12;

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    Endless,
    Time(u64),
    Polls(u64),
}

impl Patience {
    /// The patience of a caller who gets its answer at once, if all is well.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self::within(HURRY, rng)
    }

    /// The patience of a caller who expects to wait for up to some milliseconds.
    pub(super) fn within(longest: u64, rng: &mut Rng) -> Self {
        match rng.below(20) {
            0 | 1 => Self::Time(rng.below(longest)),
            2 => Self::Polls(1 + rng.below(4)),
            _ => Self::Endless,
        }
    }

    /// The output of a future, or `None` if the caller goes away before.
    pub(super) async fn wait<F: Future>(self, future: F) -> Option<F::Output> {
        match self {
            Self::Endless => Some(future.await),
            Self::Time(time) => tokio::time::timeout(ms(time), future).await.ok(),
            Self::Polls(most) => {
                let (mut future, mut polls) = (pin!(future), 0);
                poll_fn(|cx| {
                    polls += 1;
                    match future.as_mut().poll(cx) {
                        Poll::Ready(output) => Poll::Ready(Some(output)),
                        Poll::Pending if polls >= most => Poll::Ready(None),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await
            }
        }
    }
}
