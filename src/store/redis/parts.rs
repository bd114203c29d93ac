//! The parts of a cluster that have a breaker each.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{batch, progress::Progress, slots::slot_of};
use crate::{
    breaker::{CallOutcome, Permit},
    error::Error,
    key::Key,
    runtime::stalls::Begin,
    store::GiveUp,
    verdict::Verdict,
};

/// Parts that have a breaker each. A master usually has neighbouring slots. With this number few parts belong to two
/// masters, and each part has enough traffic for a breaker to learn from.
pub(super) const PARTS: usize = 64;

pub(super) fn part_of(key: &Key) -> usize {
    batch::part(slot_of(key.encoded()), PARTS)
}

/// The right to ask one part, if the check asks the breakers by itself. A part that is silent until the deadline has
/// not answered; one that is given up earlier tells nothing.
pub(super) struct Leave {
    progress: Arc<Progress>,
    deadline: Duration,
    permit: Option<Permit>,
}

/// Timers are late by about that.
const TICK: Duration = Duration::from_millis(2);

impl Leave {
    pub(super) fn ask(slot: u16, progress: &Arc<Progress>, deadline: Duration) -> Result<Self, Error> {
        let permit = progress.breakers().map(|(breakers, _)| breakers.admit(batch::part(slot, PARTS))).transpose()?;
        Ok(Self { progress: Arc::clone(progress), deadline, permit })
    }

    /// Whether the breaker waits for what comes of it.
    pub(super) fn is_probe(&self) -> bool {
        self.permit.as_ref().is_some_and(Permit::is_probe)
    }

    pub(super) fn end(mut self, result: &Result<Verdict, Error>) {
        self.settle(|_| CallOutcome::of_verdict(result));
    }

    fn settle(&mut self, signal: impl FnOnce(&Begin) -> CallOutcome) {
        if let (Some((breakers, begin)), Some(permit)) = (self.progress.breakers(), self.permit.take()) {
            breakers.settle(permit, signal(begin));
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let (progress, deadline) = (Arc::clone(&self.progress), self.deadline);
        self.settle(|begin| match begin.running(Instant::now()) + TICK >= deadline {
            true => CallOutcome::of::<()>(&Err(progress.error(deadline))),
            false => CallOutcome::NoEvidence,
        });
    }
}
