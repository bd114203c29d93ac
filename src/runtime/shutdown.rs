//! Runtimes that shut down: they drop each task that is spawned on them.

use std::future;

use tokio::runtime::Handle;

/// Whether the current tokio runtime runs new tasks. `false` without a runtime, and while it shuts down.
///
/// tokio has no query for this, so a task is spawned. Called only after another task has ended early.
pub(crate) fn takes_tasks() -> bool {
    let Ok(runtime) = Handle::try_current() else { return false };
    let task = runtime.spawn(future::pending::<()>());
    let is_taken = !task.is_finished();
    task.abort();
    is_taken
}
