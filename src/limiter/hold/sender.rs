//! The task that sends the ends of holds again.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    thread,
};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    limiter::{
        core::Core,
        hold::unanswered::{Kept, Next, PAUSE},
    },
    observe::HoldEnd,
    runtime::deadline::Deadline,
};

/// The task that sends what is kept. If its runtime shuts down, another one may start.
pub(super) struct Sender {
    core: Arc<Core>,
    /// Whether the queue counts on this task.
    is_sending: bool,
}

impl Sender {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, is_sending: true }
    }

    pub(super) async fn run(mut self) {
        loop {
            let (next, late) = self.core.unanswered.next();
            late.iter().for_each(|ending| self.core.report_hold_end(ending, HoldEnd::Unanswered));
            let may_continue = match next {
                Next::Send(batch) => self.send(batch).await || pause().await,
                Next::Wait(due) => self.wait(due).await,
                Next::Stop => {
                    self.is_sending = false;
                    return;
                }
            };
            if !may_continue {
                // Without timers, the next hold of the limiter starts another task.
                return;
            }
        }
    }

    /// Sends a batch. Returns whether the store has answered any of it.
    async fn send(&self, batch: Vec<Kept>) -> bool {
        let mut sent = JoinSet::new();
        for kept in batch {
            let in_flight = InFlight { core: Arc::clone(&self.core), kept: Some(kept) };
            sent.spawn(in_flight.send());
        }
        let mut is_answered = false;
        while let Some(result) = sent.join_next().await {
            // A panic in the store or in an observer concerns one change only.
            is_answered |= result.unwrap_or(false);
        }
        is_answered
    }

    /// Waits until a time, or until another end is kept. Returns whether the runtime has timers.
    async fn wait(&self, due: Instant) -> bool {
        let Some(pause) = Deadline::after(due.saturating_duration_since(Instant::now())) else { return false };
        let (mut pause, mut woken) = (pin!(pause), pin!(self.core.unanswered.wake.notified()));
        poll_fn(|cx| match woken.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => pause.as_mut().poll(cx),
        })
        .await;
        true
    }
}

/// Waits while the store does not answer. Returns whether the runtime has timers.
async fn pause() -> bool {
    let Some(pause) = Deadline::after(PAUSE) else { return false };
    let mut pause = pin!(pause);
    poll_fn(|cx| pause.as_mut().poll(cx)).await;
    true
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.is_sending {
            self.core.unanswered.sender_ended();
        }
    }
}

/// The end of a hold that is taken out of the queue, and put back unless its answer is the last one.
struct InFlight {
    core: Arc<Core>,
    kept: Option<Kept>,
}

impl InFlight {
    /// Sends the end. Returns whether the store has answered.
    async fn send(mut self) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        let answer = self.core.change_hold(&kept.ending.hold, kept.ending.change()).await;
        let is_last = kept.ending.is_ended_by(&answer);
        if !is_last && answer.is_ok() {
            kept.not_held();
        }
        if is_last && let Some(Kept { ending, .. }) = self.kept.take() {
            self.core.on_last_answer(&ending, &answer);
        }
        is_last || answer.is_ok()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else { return };
        if thread::panicking() {
            // The same change would panic again.
            return;
        }
        if let Some(dropped) = self.core.unanswered.put(kept) {
            self.core.report_hold_end(&dropped, HoldEnd::Unanswered);
        }
    }
}
