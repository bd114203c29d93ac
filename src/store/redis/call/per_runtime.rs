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
/// Boxed, because each check writes to the lock: without the box, the lock would share cache lines with fields of the
/// client that are only read.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(Box<Mutex<OldestFirst>>);

/// The runtimes in the order of their first use.
type OldestFirst = VecDeque<(runtime::Id, Arc<PerRuntime>)>;

/// The most runtimes that are remembered; each thread of a process may have one. Beyond this number the oldest is
/// dropped, as in tests that create one runtime after the other.
const MAX_RUNTIMES: usize = 256;

impl Runtimes {
    /// The connections and queues of the current runtime. The first call on a runtime opens them.
    ///
    /// # Errors
    ///
    /// There is no runtime, or the runtime has no timers or no I/O.
    pub(crate) fn current(&self, open: impl FnOnce() -> PerRuntime) -> Result<Arc<PerRuntime>, Error> {
        let runtime = Handle::try_current().map_err(|_| no_runtime())?.id();
        // A panic under the lock leaves a valid list.
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let find =
            |runtimes: &OldestFirst| runtimes.iter().find(|(id, _)| *id == runtime).map(|(_, found)| Arc::clone(found));
        if let Some(found) = find(&lock()) {
            return Ok(found);
        }
        // Tested without the lock: a missing driver makes tokio panic, and a panic hook may check a limit of the same
        // store.
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

/// The error of a check outside of a tokio runtime with timers and I/O.
pub(crate) fn no_runtime() -> Error {
    Error::new(
        ErrorKind::Misconfigured,
        "a check on Redis needs a tokio runtime with timers and I/O; build it with `enable_all()`",
    )
}
