//! One test on a thread of its own, so that a store that panics or blocks fails this test alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, mpsc};
use std::{any::Any, future::Future, pin::Pin, thread, time::Duration};

use tokio::{runtime, sync::oneshot, time::timeout};

use crate::failure::{NotPassed, Tested};
use crate::tested_store::LastCall;

/// A test that has not started. It is created on the thread that runs it.
pub(super) type Start = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = Tested>>> + Send>;

/// How long a thread may be late to report a test that has ended at the time limit.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a test on a thread of its own with a tokio runtime of several threads, and waits for its result.
///
/// The wait does not use the caller's timers, which a test may have paused. A thread that the store blocks for good is
/// left behind.
pub(super) async fn run(name: &str, time_limit: Duration, last_call: LastCall, start: Start) -> Tested {
    let (sender, result) = oneshot::channel();
    let supervisor = thread::Builder::new().name(format!("waits for {name}"));
    let own_name = name.to_owned();
    let spawned = supervisor.spawn(move || {
        // The caller may have stopped waiting.
        let _ = sender.send(supervise(&own_name, time_limit, &last_call, start));
    });
    spawned.map_err(|error| NotPassed::Failed(format!("the test got no thread: {error}")))?;
    result.await.unwrap_or_else(|_| Err(NotPassed::failed("the test's thread ended without a result")))
}

/// Runs the test on another thread, and returns its result, or a failure if it has no end within the time limit.
fn supervise(name: &str, time_limit: Duration, last_call: &LastCall, start: Start) -> Tested {
    let (sender, results) = mpsc::sync_channel(1);
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let ended = catch_unwind(AssertUnwindSafe(|| block_on(time_limit, start)));
        // The supervisor may have stopped waiting.
        let _ = sender.send(ended.unwrap_or_else(|panic| Some(Err(panicked(&*panic)))));
    });
    spawned.map_err(|error| NotPassed::Failed(format!("the test got no thread: {error}")))?;
    results.recv_timeout(time_limit.saturating_add(GRACE)).ok().flatten().unwrap_or_else(|| {
        let last_call = last_call.lock().unwrap_or_else(PoisonError::into_inner);
        Err(NotPassed::Failed(format!("no end within {time_limit:?}; the last call of the store: {last_call}")))
    })
}

/// Runs the test in a runtime of its own. `None` if the test waits beyond the time limit.
fn block_on(time_limit: Duration, start: Start) -> Option<Tested> {
    // Several threads, so that a store that is not safe under parallel checks has a chance to show it.
    let runtime = match runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(Err(NotPassed::Failed(format!("the test got no tokio runtime: {error}")))),
    };
    let ended = runtime.block_on(async { timeout(time_limit, start()).await.ok() });
    // Does not wait for tasks that the store has left behind.
    runtime.shutdown_background();
    ended
}

/// The failure of a store that panicked.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> NotPassed {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    NotPassed::Failed(format!("panicked: {}", text.unwrap_or("without a text")))
}
