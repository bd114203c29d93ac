//! What a store has on each tokio runtime: connections and queues, which tasks of that runtime drive.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::runtime::{self, Handle};

use super::{super::net::pool::Pool, queues::Queues};
use crate::{
    error::{Error, ErrorKind},
    runtime::drivers::Driver,
};

/// The connections and queues of one runtime.
#[derive(Debug)]
pub(crate) struct PerRuntime {
    pub(crate) pool: Pool,
    pub(crate) queues: Queues,
}

/// The runtimes that use a store.
///
/// Boxed: each check takes the lock, and the fields beside it in the client are only read.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(Box<Mutex<OldestFirst>>);

type OldestFirst = VecDeque<(runtime::Id, Arc<PerRuntime>)>;

/// The most runtimes that are remembered; each thread of a process may have one. Beyond this number the oldest is
/// dropped, as in tests that create one runtime after the other.
const MAX_RUNTIMES: usize = 256;

impl Runtimes {
    /// What the store has on the current runtime. The first call on a runtime opens it.
    ///
    /// # Errors
    ///
    /// There is no runtime, or it has no timers or no I/O.
    pub(crate) fn current(&self, open: impl FnOnce() -> PerRuntime) -> Result<Arc<PerRuntime>, Error> {
        let runtime = Handle::try_current().map_err(|_| no_runtime())?.id();
        // No invariant spans a panic: opening a pool does no I/O.
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let find =
            |runtimes: &OldestFirst| runtimes.iter().find(|(id, _)| *id == runtime).map(|(_, found)| Arc::clone(found));
        if let Some(found) = find(&lock()) {
            return Ok(found);
        }
        // Tried without the lock: a panic hook may check a limit of the same store.
        if !(Driver::Timers.is_there() && Driver::Io.is_there()) {
            return Err(no_runtime());
        }
        let mut runtimes = lock();
        if let Some(found) = find(&runtimes) {
            return Ok(found);
        }
        let opened = Arc::new(open());
        runtimes.push_back((runtime, Arc::clone(&opened)));
        if runtimes.len() > MAX_RUNTIMES {
            runtimes.pop_front();
        }
        Ok(opened)
    }
}

pub(crate) fn no_runtime() -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        "a check on Redis needs a tokio runtime with timers and I/O; build it with `enable_all()`",
    )
}
