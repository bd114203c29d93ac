//! Refunds of commits on a cluster, which are repeated until they are answered.
//!
//! A refund outlives the task that has made it: its caller may have left, or the runtime of the check may have ended.
//! So refunds wait in a list of the store, and a task of any runtime sends them. If that task is not seen to run, the
//! next check on the cluster starts another one.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{runtime::Handle, sync::Notify, time::Instant};

use super::{
    batch,
    client::Client,
    denials::KeyGroups,
    outgoing::{Charges, Indices, Outgoing, Request},
    runs::RECEIPT_TTL,
    step::{Committed, Step},
};
use crate::{
    error::{Error, ErrorKind},
    runtime::deadline::within,
};

/// The most refunds that wait. Above this number the oldest one is dropped, and its commit stays charged.
const MAX_WAITING: usize = 16_384;
/// The pause after the first attempt. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often the task shows that it runs.
const HEARTBEAT: Duration = Duration::from_millis(50);
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

    fn add(&self, refund: Refund) {
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
    fn repeat(&self, number: u64) {
        let mut list = self.list();
        if let Some(waiting) = list.position(number).and_then(|index| list.waiting.get_mut(index)) {
            waiting.is_sent = false;
        }
    }

    fn remove(&self, number: u64) {
        let mut list = self.list();
        if let Some(index) = list.position(number) {
            list.waiting.remove(index);
        }
        self.waiting.store(list.waiting.len(), Ordering::Relaxed);
    }

    /// Returns whether the caller has to start a task, because refunds wait and no task is seen to send them.
    fn needs_task(&self) -> bool {
        let now = Instant::now();
        let mut list = self.list();
        let is_lost = |seen: Instant| now.saturating_duration_since(seen) > LOST;
        let needs = !list.waiting.is_empty() && list.seen.is_none_or(is_lost);
        if needs {
            list.seen = Some(now);
        }
        needs
    }

    /// Takes the refunds that are due. They are due again after `time` and their pause, unless they are removed. `None`
    /// if no refund waits: then the task ends.
    fn take_due(&self, time: Duration) -> Option<Vec<(u64, Arc<Refund>)>> {
        let now = Instant::now();
        let mut list = self.list();
        list.waiting.retain(|waiting| now < waiting.until);
        let due =
            list.waiting.iter_mut().filter(|waiting| waiting.due <= now && waiting.may_be_sent()).map(|waiting| {
                waiting.due = now + time + waiting.pause;
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
    fn is_sent_once(&self) -> bool {
        matches!(self.step, Step::Refund(Committed::At(_)))
    }

    async fn send(&self, client: &Arc<Client>) -> Result<(), Error> {
        // Other checks may have been denied because of the units that are refunded.
        let _forget = client.denials.forget(self.groups.clone());
        let request = Request {
            outgoing: Arc::clone(&self.outgoing),
            charges: Charges::Some(self.charges.clone()),
            step: self.step,
        };
        batch::send(Arc::clone(client), self.slot, request).await.map(|_| ())
    }
}

/// Sends a refund, now and until it is answered.
pub(super) fn add(client: &Arc<Client>, runtime: &Handle, refund: Refund) {
    client.refunds.add(refund);
    start_task(client, runtime);
}

/// Starts a task for refunds that wait, if none is seen to run.
pub(super) fn resume(client: &Arc<Client>) {
    if client.refunds.waiting.load(Ordering::Relaxed) > 0
        && let Ok(runtime) = Handle::try_current()
    {
        start_task(client, &runtime);
    }
}

fn start_task(client: &Arc<Client>, runtime: &Handle) {
    if client.refunds.needs_task() {
        // A runtime that has ended drops the task. The next check starts another one.
        runtime.spawn(send_all(Arc::clone(client)));
    }
}

/// Sends refunds until none waits.
async fn send_all(client: Arc<Client>) {
    let deadline = client.settings.deadline;
    while let Some(due) = client.refunds.take_due(deadline) {
        for (number, refund) in due {
            tokio::spawn(attempt(Arc::clone(&client), number, refund));
        }
        let _ = within(HEARTBEAT, client.refunds.added.notified()).await;
    }
}

/// Sends a refund once, and removes it from the list if it is answered.
async fn attempt(client: Arc<Client>, number: u64, refund: Arc<Refund>) {
    let sent = within(client.settings.deadline, refund.send(&client)).await;
    let is_over = match &sent {
        Some(Ok(())) => true,
        // A value that is not a count has lost the commit.
        Some(Err(error)) if error.kind() == ErrorKind::BadKey => true,
        Some(Err(error)) if !error.may_have_charged() => false,
        // It is unknown whether it was made.
        _ => refund.is_sent_once(),
    };
    match is_over {
        true => client.refunds.remove(number),
        false => client.refunds.repeat(number),
    }
}
