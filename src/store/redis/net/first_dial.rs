//! The first dial of a server, for which checks may wait beyond their deadline.
//!
//! A dial takes several round trips and perhaps a TLS handshake; a check takes one round trip. Without extra time the
//! first requests after each start would get no verdict.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::runtime::{deadline::within, stalls::Begin};

/// The first dial of one pool. It is over when it has succeeded or failed, or when its time has passed.
#[derive(Clone, Debug)]
pub(crate) struct FirstDial(Arc<DialState>);

#[derive(Debug)]
struct DialState {
    begin: Option<Begin>,
    limit: Duration,
    has_ended: AtomicBool,
    ended: Notify,
}

impl FirstDial {
    /// Creates a first dial that begins now, on the current runtime.
    pub(crate) fn begin(limit: Duration) -> Self {
        let (has_ended, ended) = (AtomicBool::new(false), Notify::new());
        Self(Arc::new(DialState { begin: Begin::now(limit), limit, has_ended, ended }))
    }

    /// Creates a first dial that is over already, so that checks do not wait for it.
    pub(crate) fn over() -> Self {
        let (has_ended, ended) = (AtomicBool::new(true), Notify::new());
        Self(Arc::new(DialState { begin: None, limit: Duration::ZERO, has_ended, ended }))
    }

    /// Records the end of a dial. Later dials change nothing.
    pub(crate) fn end(&self) {
        if !self.0.has_ended.swap(true, Ordering::AcqRel) {
            self.0.ended.notify_waiters();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() || self.left().is_zero()
    }

    /// Waits until the dial is over. Returns whether the dial ended in time.
    pub(crate) async fn wait(&self) -> bool {
        let mut ended = pin!(self.0.ended.notified());
        // From here on no notification is missed.
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
        let DialState { begin, limit, .. } = &*self.0;
        begin.map_or(Duration::ZERO, |begin| limit.saturating_sub(begin.running(Instant::now())))
    }
}
