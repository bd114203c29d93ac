//! The look-ups that are on their way, at most one for each key and a bounded number in all; and the task of one.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{collections::HashMap, task::Poll, time::Duration};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{entry::Answer, source::LookUp};
use crate::key::Key;
use crate::runtime::{deadline::within, drivers::Driver};

/// One look-up that is on its way.
pub(super) struct Mark {
    /// Distinguishes the look-up from later ones of the same key.
    id: u64,
    /// Whether the key was known when the look-up began.
    is_known: bool,
    /// When the look-up no longer keeps others from starting, because its runtime has not run it.
    overdue_at_us: u64,
    /// Dropped with the mark, which ends the task of the look-up. Not dropped under the lock: the task may end at once,
    /// and then takes the lock.
    _cancel: oneshot::Sender<()>,
}

/// All look-ups that are on their way. Every change of the cache of plans happens under this lock, so that the answer
/// of a look-up cannot overwrite what replaced it.
#[derive(Default)]
pub(super) struct InFlight(Mutex<Marks>);

#[derive(Default)]
pub(super) struct Marks {
    by_key: HashMap<Key, Mark>,
    /// How many of the look-ups are of known keys.
    known: usize,
    last_id: u64,
    /// The earliest time at which a mark may be overdue.
    sweep_at_us: u64,
}

/// Whether a look-up may start.
pub(super) enum Admission {
    /// It is marked. The receiver ends when the mark is removed.
    Started { id: u64, cancelled: oneshot::Receiver<()> },
    /// Another look-up of the key is on its way.
    UnderWay,
    /// Too many look-ups are on their way.
    Busy,
}

impl InFlight {
    pub(super) fn lock(&self) -> MutexGuard<'_, Marks> {
        // A mark is inserted or removed in one call, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of the look-ups that is kept for known keys, and the part that is kept for other keys: one in this number.
const KEPT: usize = 4;

/// The most look-ups of known keys, and the most of other keys, if `most` may be on their way in all. At least one is
/// kept for either kind, unless there is only one.
fn share(most: usize) -> usize {
    (most - (most / KEPT).max(1)).max(1)
}

impl Marks {
    /// Marks a look-up of `key`, if none is on its way, fewer than `most` are in all, and the keys of its kind have not
    /// taken their share. Overdue marks go to `removed`.
    pub(super) fn start(
        &mut self,
        key: &Key,
        is_known: bool,
        now_us: u64,
        overdue_at_us: u64,
        most: usize,
        removed: &mut SmallVec<[Mark; 1]>,
    ) -> Admission {
        match self.by_key.get(key) {
            Some(mark) if now_us < mark.overdue_at_us => return Admission::UnderWay,
            Some(_) => removed.extend(self.cancel(key)),
            None => {}
        }
        if self.is_busy(is_known, most) && now_us >= self.sweep_at_us {
            let overdue = self.by_key.extract_if(|_, mark| now_us >= mark.overdue_at_us);
            removed.extend(overdue.map(|(_, mark)| mark));
            self.known = self.by_key.values().filter(|mark| mark.is_known).count();
            self.sweep_at_us = self.by_key.values().map(|mark| mark.overdue_at_us).min().unwrap_or(0);
        }
        if self.is_busy(is_known, most) {
            return Admission::Busy;
        }
        self.last_id += 1;
        let id = self.last_id;
        self.sweep_at_us = self.sweep_at_us.min(overdue_at_us);
        let (cancel, cancelled) = oneshot::channel();
        self.by_key.insert(key.clone(), Mark { id, is_known, overdue_at_us, _cancel: cancel });
        self.known += usize::from(is_known);
        Admission::Started { id, cancelled }
    }

    fn is_busy(&self, is_known: bool, most: usize) -> bool {
        let of_its_kind = if is_known { self.known } else { self.by_key.len() - self.known };
        self.by_key.len() >= most || of_its_kind >= share(most)
    }

    /// Removes the mark of this look-up. `None` if the mark is gone or belongs to a later look-up.
    pub(super) fn end(&mut self, key: &Key, id: u64) -> Option<Mark> {
        if self.by_key.get(key)?.id == id { self.cancel(key) } else { None }
    }

    /// Removes the mark of any look-up of the key, whose answer is then ignored.
    pub(super) fn cancel(&mut self, key: &Key) -> Option<Mark> {
        let mark = self.by_key.remove(key)?;
        self.known -= usize::from(mark.is_known);
        Some(mark)
    }
}

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
