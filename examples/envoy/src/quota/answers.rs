//! The answers of one stream, in the form in which they are sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::{mem, pin::Pin, time::Duration};

use envoy_types::pb::envoy::service::rate_limit_quota::v3::RateLimitQuotaResponse;
use metrics::Counter;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::Stream;
use tonic::Status;

use super::assignment::{Action, Assignment, Entries};

/// How long an Envoy may leave an answer unread.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most actions of one message.
const MOST_ACTIONS: usize = 1_024;

/// What both ends share.
#[derive(Debug, Default)]
struct State {
    /// The status that ends the stream, after all answers.
    end: Option<Status>,
    /// The buckets whose blocks were too late to be sent.
    late: Vec<Entries>,
}

/// The end at which answers come in.
#[derive(Debug)]
pub(super) struct Sender {
    actions: mpsc::Sender<Vec<Action>>,
    state: Arc<Mutex<State>>,
}

/// The end that the connection reads as far as the Envoy has room.
#[derive(Debug)]
pub(crate) struct Answers {
    actions: mpsc::Receiver<Vec<Action>>,
    state: Arc<Mutex<State>>,
    late: Counter,
}

/// The Envoy has gone.
pub(super) struct Gone;

/// `late` counts the blocks that are too old when they would be sent.
pub(super) fn channel(late: Counter) -> (Sender, Answers) {
    let (sender, receiver) = mpsc::channel(1);
    let state = Arc::<Mutex<State>>::default();
    (Sender { actions: sender, state: Arc::clone(&state) }, Answers { actions: receiver, state, late })
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

    /// The buckets whose Envoy was told to refuse everything, because their blocks were too old, of the answers that
    /// are taken.
    pub(super) fn late(&self) -> Vec<Entries> {
        mem::take(&mut lock(&self.state).late)
    }

    /// Ends the stream with this status, after the answers that wait.
    pub(super) fn end(self, status: Status) {
        lock(&self.state).end = Some(status);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream for Answers {
    type Item = Result<RateLimitQuotaResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { actions, state, late } = self.get_mut();
        // From before the answer is taken, so that the other end sees which of its blocks were late.
        let mut state = lock(state);
        let Some(actions) = ready!(actions.poll_recv(cx)) else {
            return Poll::Ready(state.end.take().map(Err));
        };
        let mut response = RateLimitQuotaResponse::default();
        for mut action in actions {
            // Directly before it is sent, because the answer may have waited for the Envoy.
            if action.is_late() {
                late.increment(1);
                action.assignment = Assignment::DenyAll;
                state.late.push(action.entries.clone());
            }
            action.write(&mut response.bucket_action);
        }
        Poll::Ready(Some(Ok(response)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, advance};
    use tokio_stream::StreamExt;

    use super::{
        super::assignment::{MARGIN, TTL},
        *,
    };

    #[tokio::test(start_paused = true)]
    async fn a_block_that_is_too_old_is_a_refusal_and_the_sender_knows() {
        let (sender, mut answers) = channel(Counter::noop());
        for (late, age) in [(false, MARGIN / 2), (true, MARGIN / 2 + Duration::from_millis(1))] {
            let entries = vec![("tenant".to_owned(), "a".to_owned())];
            let assignment = Assignment::Block { units: 8, ttl: TTL, made: Instant::now() };
            let sent = sender.send(vec![Action { entries: entries.clone(), assignment }]).await;
            assert!(matches!(sent, Ok(Ok(()))));
            advance(age).await;
            let actions = answers.next().await.unwrap().unwrap().bucket_action.len();
            // A block is a refusal of everything, and a bucket.
            assert_eq!(actions, if late { 1 } else { 2 });
            assert_eq!(sender.late(), if late { vec![entries] } else { Vec::new() });
            assert!(sender.late().is_empty(), "once");
        }
    }
}
