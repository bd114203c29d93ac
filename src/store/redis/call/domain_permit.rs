//! Permits from the breakers of failure domains.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::traffic::{CLUSTER_DOMAINS, domain_of};
use super::{batch, client::Client, outgoing::Request, parts::given_up, progress::Progress};
use crate::breaker::{CallOutcome, Permit};
use crate::{error::Error, runtime::stalls::Begin, verdict::Verdict};

/// The permit to call one failure domain, for a check that asks the breaker of each domain by itself.
///
/// A call that has no reply at the deadline counts as a failure. A call that is dropped earlier has no outcome.
pub(crate) struct DomainPermit {
    progress: Arc<Progress>,
    domain: usize,
    deadline: Duration,
    permit: Option<Permit>,
}

/// The usual delay of a timer.
const TIMER_DELAY: Duration = Duration::from_millis(2);

/// Sends a request with a permit of the breaker of its failure domain.
pub(super) async fn ask(client: Arc<Client>, slot: u16, request: Request) -> Result<Verdict, Error> {
    let permit = DomainPermit::acquire(slot, &request.outgoing.progress, client.settings.deadline)?;
    let is_probe = permit.is_probe();
    let asked = async move {
        let result = batch::send(client, slot, request).await;
        permit.end(&result);
        result
    };
    match is_probe {
        // A task, because the breaker waits for the outcome of its probe, also when the caller leaves.
        true => tokio::spawn(asked).await.unwrap_or_else(|_| Err(given_up())),
        false => asked.await,
    }
}

impl DomainPermit {
    /// Requests a permit from the breaker of the domain that `slot` belongs to.
    ///
    /// # Errors
    ///
    /// The breaker of the domain is open.
    pub(crate) fn acquire(slot: u16, progress: &Arc<Progress>, deadline: Duration) -> Result<Self, Error> {
        let domain = domain_of(slot, CLUSTER_DOMAINS);
        let permit = progress.breakers().map(|(breakers, _)| breakers.admit(domain)).transpose()?;
        Ok(Self { progress: Arc::clone(progress), domain, deadline, permit })
    }

    /// Whether the call is a probe, whose outcome the breaker waits for.
    pub(crate) fn is_probe(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_probe)
    }

    /// Ends the call and reports its result to the breaker.
    pub(crate) fn end(mut self, result: &Result<Verdict, Error>) {
        self.settle(|_| CallOutcome::of_verdict(result));
    }

    fn settle(&mut self, outcome: impl FnOnce(&Begin) -> CallOutcome) {
        if let (Some((breakers, begin)), Some(permit)) = (self.progress.breakers(), self.permit.take()) {
            breakers.settle(permit, outcome(begin));
        }
    }
}

impl Drop for DomainPermit {
    fn drop(&mut self) {
        let (progress, domain, deadline) = (Arc::clone(&self.progress), self.domain, self.deadline);
        self.settle(|begin| match begin.running(Instant::now()) + TIMER_DELAY >= deadline {
            true => CallOutcome::of::<()>(&Err(progress.error_in(domain, deadline))),
            false => CallOutcome::NoEvidence,
        });
    }
}
