//! The answers of one stream, in the form in which they are sent.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use envoy_types::pb::envoy::service::rate_limit_quota::v3::RateLimitQuotaResponse;
use metrics::Counter;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::Stream;
use tonic::Status;

use super::assignment::{Action, Assignment};

/// How long an Envoy may leave an answer unread.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most actions of one message.
const MOST_ACTIONS: usize = 1_024;

/// The status that ends a stream, after all answers.
type End = Arc<Mutex<Option<Status>>>;

/// The end at which answers come in.
#[derive(Debug)]
pub(super) struct Sender {
    actions: mpsc::Sender<Vec<Action>>,
    end: End,
}

/// The end that the connection reads as far as the Envoy has room.
#[derive(Debug)]
pub(crate) struct Answers {
    actions: mpsc::Receiver<Vec<Action>>,
    end: End,
    late: Counter,
}

/// The Envoy has gone.
pub(super) struct Gone;

/// `late` counts the blocks that are too old when they would be sent.
pub(super) fn channel(late: Counter) -> (Sender, Answers) {
    let (sender, receiver) = mpsc::channel(1);
    let end = End::default();
    (Sender { actions: sender, end: Arc::clone(&end) }, Answers { actions: receiver, end, late })
}

impl Sender {
    /// Waits until the connection has taken all answers.
    pub(super) async fn taken(&self) -> Result<Result<(), Gone>, Status> {
        match timeout(PATIENCE, self.actions.reserve()).await {
            Ok(Ok(_)) => Ok(Ok(())),
            Ok(Err(_)) => Ok(Err(Gone)),
            Err(_) => Err(Status::deadline_exceeded("the answers are not read; open another stream")),
        }
    }

    /// Sends actions, if there are any, in one message or several.
    pub(super) async fn send(&self, actions: Vec<Action>) -> Result<Result<(), Gone>, Status> {
        for part in actions.chunks(MOST_ACTIONS) {
            if let Err(gone) = self.taken().await? {
                return Ok(Err(gone));
            }
            if self.actions.send(part.to_vec()).await.is_err() {
                return Ok(Err(Gone));
            }
        }
        Ok(Ok(()))
    }

    /// Ends the stream with this status, after the answers that wait.
    pub(super) fn end(self, status: Status) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }
}

impl Stream for Answers {
    type Item = Result<RateLimitQuotaResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(actions) = ready!(self.actions.poll_recv(cx)) else {
            let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take();
            return Poll::Ready(end.map(Err));
        };
        let mut response = RateLimitQuotaResponse::default();
        for mut action in actions {
            // Directly before it is sent, because the answer may have waited for the Envoy.
            if action.is_late() {
                self.late.increment(1);
                action.assignment = Assignment::DenyAll;
            }
            action.write(&mut response.bucket_action);
        }
        Poll::Ready(Some(Ok(response)))
    }
}
