//! The time that the script uses: the server's time, or this process's time if the server forbids `TIME` in scripts.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use crate::clock::{Clock, SystemClock, wall_time_us};

/// The source of the script's time.
#[derive(Debug)]
pub(crate) struct ScriptClock {
    /// The user's clock, which replaces the server's.
    clock: Option<Arc<dyn Clock>>,
    /// Until when calls carry the process's time, because the server has forbidden `TIME`.
    time_forbidden_until_us: AtomicU64,
    /// By how much the server's clock was ahead of the process's in the last reply with a calendar window.
    server_ahead_us: AtomicI64,
}

/// Period after which `TIME` is tried again: the server's time is better, because all instances share it.
const RETRY_TIME_US: u64 = 60_000_000;

impl ScriptClock {
    pub(crate) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, time_forbidden_until_us: AtomicU64::new(0), server_ahead_us: AtomicI64::new(0) }
    }

    /// The time to send with a call. With `None` the script uses the server's time.
    ///
    /// The wall clock may step, but all machines have to agree on the time, and the time of a key in Redis never runs
    /// backwards.
    pub(crate) fn now_us(&self) -> Option<u64> {
        if let Some(clock) = &self.clock {
            return Some(clock.now_us());
        }
        let until_us = self.time_forbidden_until_us.load(Ordering::Relaxed);
        (until_us > 0 && SystemClock.now_us() < until_us).then(wall_time_us)
    }

    /// Records the time of a reply.
    pub(crate) fn replied(&self, time_us: u64) {
        self.server_ahead_us.store(time_us.wrapping_sub(SystemClock.now_us()).cast_signed(), Ordering::Relaxed);
    }

    /// The server's time, as far as the last reply says; before the first one, the process's time.
    pub(crate) fn expected_us(&self) -> u64 {
        SystemClock.now_us().saturating_add_signed(self.server_ahead_us.load(Ordering::Relaxed))
    }

    /// Records that the server forbids `TIME` in scripts.
    pub(crate) fn time_is_forbidden(&self) {
        self.time_forbidden_until_us.store(SystemClock.now_us() + RETRY_TIME_US, Ordering::Relaxed);
    }
}
