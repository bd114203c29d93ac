//! What happens to the thread on which the tasks of a process run.

use std::cell::Cell;

thread_local! {
    /// For how long the task that runs keeps its thread, in milliseconds.
    static BLOCKS: Cell<u64> = const { Cell::new(0) };
    /// Whether the process that runs is being killed.
    static IS_KILLED: Cell<bool> = const { Cell::new(false) };
}

/// Whether tasks end because their process is killed.
pub(crate) fn is_killed() -> bool {
    IS_KILLED.get()
}

/// Calls `work`, which ends tasks because their process is killed.
pub(super) fn kill(work: impl FnOnce()) {
    IS_KILLED.set(true);
    work();
    IS_KILLED.set(false);
}

/// Keeps the thread of the current runtime for some milliseconds. The caller goes on, and what is ready within this
/// millisecond: then the runtime stands still.
pub(crate) fn block(milliseconds: u64) {
    BLOCKS.set(BLOCKS.get().max(milliseconds));
}

/// For how long tasks have wanted to keep their thread since this was asked last, in milliseconds.
pub(super) fn take_blocks() -> u64 {
    BLOCKS.take()
}
