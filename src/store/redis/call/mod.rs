//! What is sent to Redis: checks, the script and its protocol, batches, and checks across slots.

mod alone;
mod alternatives;
pub(crate) mod batch;
mod by_key;
mod calendar_times;
pub(crate) mod client;
pub(crate) mod count_reply;
pub(crate) mod cross_slot;
pub(crate) mod denials;
mod domain_permit;
mod hold_record;
pub(crate) mod outgoing;
mod pace;
mod packed;
mod parts;
pub(crate) mod progress;
mod protocol;
mod queue;
mod queued;
pub(crate) mod redis_key;
pub(crate) mod refund_list;
mod reply;
mod runs;
pub(crate) mod script;
mod series;
pub(crate) mod traffic;
pub(super) mod up_to;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use self::queue::Queues;
use crate::error::{Error, ErrorKind};
use crate::{runtime::drivers::Driver, store::redis::net::Pool};

/// The connections and queues of one runtime.
#[derive(Debug)]
pub(crate) struct PerRuntime {
    pub(crate) pool: Pool,
    pub(crate) queues: Queues,
}

/// The runtimes that use a store. A runtime that ends is forgotten, and its connections are closed.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(Arc<InUse>);

/// Each thread of a process may have a runtime, so there are few.
#[derive(Debug, Default)]
struct InUse(Mutex<Vec<Opened>>);

#[derive(Debug)]
struct Opened {
    runtime: runtime::Id,
    opened: Arc<PerRuntime>,
    /// Ends the task that waits for the end of the runtime.
    _watched: oneshot::Sender<()>,
}

impl Runtimes {
    /// The connections and queues of the current runtime. The first call on a runtime opens them.
    ///
    /// # Errors
    ///
    /// There is no runtime, or the runtime has no timers or no I/O.
    pub(crate) fn current(&self, open: impl FnOnce() -> PerRuntime) -> Result<Arc<PerRuntime>, Error> {
        let handle = Handle::try_current().map_err(|_| no_runtime())?;
        let runtime = handle.id();
        let find = |runtimes: &Vec<Opened>| {
            runtimes.iter().find(|opened| opened.runtime == runtime).map(|found| Arc::clone(&found.opened))
        };
        if let Some(found) = find(&self.0.lock()) {
            return Ok(found);
        }
        // Tested without the lock: a missing driver makes tokio panic, and a panic hook may check a limit of the same
        // store.
        if !(Driver::Timers.is_there() && Driver::Io.is_there()) {
            return Err(no_runtime());
        }
        let (watched, store_has_gone) = oneshot::channel();
        let mut runtimes = self.0.lock();
        if let Some(found) = find(&runtimes) {
            return Ok(found);
        }
        let opened = Arc::new(open());
        runtimes.push(Opened { runtime, opened: Arc::clone(&opened), _watched: watched });
        drop(runtimes);
        // Without the lock, because a runtime that shuts down drops the task at once.
        let watch = Watch { in_use: Arc::downgrade(&self.0), runtime };
        handle.spawn(async move {
            let _watch = watch;
            let _ = store_has_gone.await;
        });
        Ok(opened)
    }
}

impl InUse {
    fn lock(&self) -> MutexGuard<'_, Vec<Opened>> {
        // A panic under the lock leaves a valid list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets a runtime when its tasks are dropped.
struct Watch {
    in_use: Weak<InUse>,
    runtime: runtime::Id,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(in_use) = self.in_use.upgrade() else { return };
        let ended = {
            let mut runtimes = in_use.lock();
            let place = runtimes.iter().position(|opened| opened.runtime == self.runtime);
            place.map(|place| runtimes.swap_remove(place))
        };
        // Closes connections, so without the lock.
        drop(ended);
    }
}

/// The error of a check outside of a tokio runtime with timers and I/O.
pub(crate) fn no_runtime() -> Error {
    Error::new(
        ErrorKind::StoreMisconfigured,
        "a check on Redis needs a tokio runtime with timers and I/O; build it with `enable_all()`",
    )
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use crate::RedisStore;

    #[test]
    fn a_runtime_that_has_ended_is_forgotten_and_no_other_one() {
        let store = RedisStore::open("redis://127.0.0.1:1").unwrap();
        let client = &store.inner.client;
        let runtimes = [(); 2].map(|()| Builder::new_current_thread().enable_all().build().unwrap());
        runtimes.iter().for_each(|runtime| drop(runtime.block_on(async { client.runtime().unwrap() })));
        let known = || client.runtimes.0.lock().iter().map(|opened| opened.runtime).collect::<Vec<_>>();
        let [first, last] = runtimes;
        drop(first);
        assert_eq!(known(), [last.handle().id()]);
        drop(last);
        assert!(known().is_empty());
    }
}
