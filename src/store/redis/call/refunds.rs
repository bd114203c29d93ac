//! Refunds of commits on a cluster, which are repeated until they are answered.
//!
//! A refund outlives the task that has made it: its caller may have left, or the runtime of the check may have ended.
//! So refunds wait in a list of the store, and a task of any runtime sends them. If that task is not seen to run, the
//! next check on the cluster starts another one.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::{
    batch,
    client::Client,
    outgoing::{Charges, Request},
    refund_list::Refund,
};
use crate::{
    error::{Error, ErrorKind},
    runtime::deadline::within,
};

/// How often the task shows that it runs.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// Sends a refund, now and until it is answered.
pub(super) fn add(client: &Arc<Client>, runtime: &Handle, refund: Refund) {
    client.refunds.add(refund);
    start_task(client, runtime);
}

/// Starts a task for refunds that wait, if none is seen to run.
pub(super) fn resume(client: &Arc<Client>) {
    if !client.refunds.is_empty()
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
        let _ = within(HEARTBEAT, client.refunds.added()).await;
    }
}

/// Sends a refund once, and removes it from the list if it is answered.
async fn attempt(client: Arc<Client>, number: u64, refund: Arc<Refund>) {
    let sent = within(client.settings.deadline, send(&client, &refund)).await;
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

async fn send(client: &Arc<Client>, refund: &Refund) -> Result<(), Error> {
    // Other checks may have been denied because of the units that are refunded.
    let _forget = client.denials.forget(refund.groups.clone());
    let request = Request {
        outgoing: Arc::clone(&refund.outgoing),
        charges: Charges::Some(refund.charges.clone()),
        step: refund.step,
    };
    batch::send(Arc::clone(client), refund.slot, request).await.map(|_| ())
}
