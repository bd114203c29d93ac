//! The refunds of a store that are not answered yet.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::VecDeque, time::Duration};

use tokio::{sync::Notify, time::Instant};

use super::outgoing::{Committed, Indices, Outgoing, Step};
use super::{denials::KeyGroups, runs::RECEIPT_TTL};

/// The most refunds that wait. Above this number the oldest one is dropped, and its commit stays charged.
const MAX_WAITING: usize = 16_384;
/// The pause after the first attempt. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A task that has not run for this time is taken for lost: its runtime has ended, or is not driven.
const LOST: Duration = Duration::from_millis(250);

/// The refund of one part of a check.
#[derive(Debug)]
pub(super) struct Refund {
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) charges: Indices,
    pub(super) slot: u16,
    /// The remembered denials that the refund contradicts.
    pub(super) groups: KeyGroups,
    /// The step that refunds.
    pub(super) step: Step,
}

/// The refunds of a store that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Refunds {
    list: Mutex<List>,
    /// The number of refunds that wait, so that a check without any takes no lock.
    waiting: AtomicUsize,
    added: Notify,
}

#[derive(Debug, Default)]
struct List {
    waiting: VecDeque<Waiting>,
    /// The number of refunds that were ever added.
    added: u64,
    /// When a task was last seen to send refunds.
    seen: Option<Instant>,
}

/// A refund that waits for its next attempt, or for the answer to the last one.
#[derive(Debug)]
struct Waiting {
    number: u64,
    refund: Arc<Refund>,
    /// When it is sent next.
    due: Instant,
    pause: Duration,
    is_sent: bool,
    /// When the receipt may have expired.
    until: Instant,
}

impl Refunds {
    fn list(&self) -> MutexGuard<'_, List> {
        // A panic under the lock leaves a valid list.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, refund: Refund) {
        let now = Instant::now();
        let mut list = self.list();
        if list.waiting.len() >= MAX_WAITING {
            list.waiting.pop_front();
        }
        let number = list.added;
        list.added += 1;
        let (refund, until) = (Arc::new(refund), now + RECEIPT_TTL);
        list.waiting.push_back(Waiting { number, refund, due: now, pause: FIRST_PAUSE, is_sent: false, until });
        self.waiting.store(list.waiting.len(), Ordering::Relaxed);
        drop(list);
        self.added.notify_one();
    }

    /// Allows that a refund is sent again.
    pub(super) fn repeat(&self, number: u64) {
        let mut list = self.list();
        if let Some(waiting) = list.position(number).and_then(|index| list.waiting.get_mut(index)) {
            waiting.is_sent = false;
        }
    }

    pub(super) fn remove(&self, number: u64) {
        let mut list = self.list();
        if let Some(index) = list.position(number) {
            list.waiting.remove(index);
        }
        self.waiting.store(list.waiting.len(), Ordering::Relaxed);
    }

    /// Returns whether the caller has to start a task, because refunds wait and no task is seen to send them.
    pub(super) fn needs_task(&self) -> bool {
        let now = Instant::now();
        let mut list = self.list();
        let is_lost = |seen: Instant| now.saturating_duration_since(seen) > LOST;
        let needs = !list.waiting.is_empty() && list.seen.is_none_or(is_lost);
        if needs {
            list.seen = Some(now);
        }
        needs
    }

    /// Whether no refund waits. Takes no lock.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Resolves when a refund is added, or was since the last time.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    /// Takes the refunds that are due. They are due again after `time` and their pause, unless they are removed. `None`
    /// if no refund waits: then the task ends.
    pub(super) fn take_due(&self, time: Duration) -> Option<Vec<(u64, Arc<Refund>)>> {
        let now = Instant::now();
        let mut list = self.list();
        list.waiting.retain(|waiting| now < waiting.until);
        let due =
            list.waiting.iter_mut().filter(|waiting| waiting.due <= now && waiting.may_be_sent()).map(|waiting| {
                // A deadline may be arbitrarily long; sums of times must not overflow.
                waiting.due = now + time.min(RECEIPT_TTL) + waiting.pause;
                waiting.pause = (waiting.pause * 2).min(LONGEST_PAUSE);
                waiting.is_sent = true;
                (waiting.number, Arc::clone(&waiting.refund))
            });
        let due: Vec<_> = due.collect();
        self.waiting.store(list.waiting.len(), Ordering::Relaxed);
        list.seen = (!due.is_empty() || !list.waiting.is_empty()).then_some(now);
        list.seen.is_some().then_some(due)
    }
}

impl List {
    fn position(&self, number: u64) -> Option<usize> {
        // The numbers ascend.
        self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()
    }
}

impl Waiting {
    fn may_be_sent(&self) -> bool {
        !(self.is_sent && self.refund.is_sent_once())
    }
}

impl Refund {
    pub(super) fn is_sent_once(&self) -> bool {
        matches!(self.step, Step::Refund(Committed::At(_)))
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::{
        check::Check,
        key::Key,
        policy::Policy,
        store::redis::call::{outgoing::Receipt, progress::Progress},
    };

    const BY_TIME: Step = Step::Refund(Committed::At(1));
    const BY_RECEIPT: Step = Step::Refund(Committed::Receipt(Receipt { check: 1, part: 0 }));

    fn refunds(steps: &[Step]) -> Refunds {
        let refunds = Refunds::default();
        for &step in steps {
            let check = Check::new("k", &Policy::per_minute("p", 10).unwrap(), 1);
            let outgoing = Arc::new(Outgoing::new(check, smallvec![Key::from("k")], Progress::new(false), None));
            refunds.add(Refund { outgoing, charges: smallvec![0], slot: 0, groups: smallvec![], step });
        }
        refunds
    }

    /// The numbers of the refunds that are sent now, with a deadline of 50 ms. `None` if none waits.
    fn sent(refunds: &Refunds) -> Option<Vec<u64>> {
        let due = refunds.take_due(Duration::from_millis(50))?;
        Some(due.into_iter().map(|(number, _)| number).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn law_3_a_refund_is_sent_after_longer_and_longer_pauses_until_its_receipt_may_have_expired() {
        let (refunds, start, mut times) = (refunds(&[BY_RECEIPT]), Instant::now(), Vec::new());
        while let Some(due) = sent(&refunds) {
            times.extend(due.iter().map(|_| start.elapsed().as_millis()));
            assert!(start.elapsed() < 2 * RECEIPT_TTL, "the refund is never given up");
            advance(Duration::from_millis(10)).await;
        }
        assert_eq!(times[..7], [0, 100, 250, 500, 950, 1_800, 2_850]);
        assert_eq!((start.elapsed(), refunds.is_empty()), (RECEIPT_TTL, true));
    }

    #[tokio::test(start_paused = true)]
    async fn law_3_a_refund_that_names_a_time_is_sent_again_only_if_it_certainly_was_not_made() {
        let refunds = refunds(&[BY_TIME, BY_TIME, BY_RECEIPT]);
        assert_eq!([refunds.needs_task(), refunds.needs_task()], [true, false]);
        assert_eq!(sent(&refunds), Some(vec![0, 1, 2]));
        refunds.repeat(1);
        advance(Duration::from_secs(1)).await;
        assert_eq!(sent(&refunds), Some(vec![1, 2]));
        refunds.remove(1);
        advance(Duration::from_secs(1)).await;
        assert_eq!(sent(&refunds), Some(vec![2]));
        refunds.remove(2);
        assert!(!refunds.is_empty());
        refunds.remove(0);
        assert!(refunds.is_empty());
        assert_eq!(sent(&refunds), None, "the task ends");
        refunds.added().await;
        assert!(timeout(LOST, refunds.added()).await.is_err(), "none was added since");
    }
}
