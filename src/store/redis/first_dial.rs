//! The first connection to a server, for which checks may wait beyond their deadline.
//!
//! A connection takes several round trips and perhaps a TLS handshake where a check takes one round trip. Without more
//! time the first requests of every start would get no verdict.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    progress::Progress,
    shared::{Link, Shared},
};
use crate::{
    error::Error,
    runtime::{deadline::within, stalls::Begin},
};

/// The first dial of one pool. It is over when it has ended, in success or in failure, or when its time has passed.
#[derive(Clone, Debug)]
pub(super) struct FirstDial(Arc<State>);

#[derive(Debug)]
struct State {
    begin: Option<Begin>,
    limit: Duration,
    has_ended: AtomicBool,
    ended: Notify,
}

impl FirstDial {
    /// Begins now, on the current runtime.
    pub(super) fn begin(limit: Duration) -> Self {
        let (has_ended, ended) = (AtomicBool::new(false), Notify::new());
        Self(Arc::new(State { begin: Begin::now(limit), limit, has_ended, ended }))
    }

    /// Of a pool that checks do not wait for.
    #[cfg(feature = "cluster")]
    pub(super) fn over() -> Self {
        let (has_ended, ended) = (AtomicBool::new(true), Notify::new());
        Self(Arc::new(State { begin: None, limit: Duration::ZERO, has_ended, ended }))
    }

    /// Notes the end of a dial, be it the first or a later one.
    pub(super) fn end(&self) {
        if !self.0.has_ended.swap(true, Ordering::AcqRel) {
            self.0.ended.notify_waiters();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.has_ended() || self.left().is_zero()
    }

    /// Waits until it is over. Tells whether it has ended in time.
    pub(super) async fn wait(&self) -> bool {
        let mut ended = pin!(self.0.ended.notified());
        // From here on no end is missed.
        ended.as_mut().enable();
        if !self.has_ended() {
            let _ = within(self.left(), ended).await;
        }
        self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    fn left(&self) -> Duration {
        let State { begin, limit, .. } = &*self.0;
        begin.map_or(Duration::ZERO, |begin| limit.saturating_sub(begin.running(Instant::now())))
    }
}

impl Shared {
    /// Waits for the first connection to the servers that have these slots, if it is just being made.
    pub(super) async fn first_connection(&self, link: &Link, slots: &[u16], progress: &Progress) -> Result<(), Error> {
        if slots.iter().all(|&slot| link.pool.first_dial(slot).is_none()) {
            return Ok(());
        }
        // In a box, because it is rare.
        let dialled = Box::pin(async {
            for &slot in slots {
                // On a cluster the master is known only after a dial of its own.
                while let Some(dial) = link.pool.first_dial(slot) {
                    if !dial.wait().await {
                        return false;
                    }
                }
            }
            true
        });
        progress.awaits_connection(self.first_dial_deadline);
        match within(self.first_dial_deadline, dialled).await {
            Some(true) => progress.has_connection(),
            _ => progress.misses_connection(self.deadline)?,
        }
        Ok(())
    }
}
