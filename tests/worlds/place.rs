//! Where callers run, and when nothing runs there.

/// Where a caller runs: its process, and the runtime there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) process: usize,
    pub(crate) runtime: usize,
}

/// When a process or one of its runtimes did not run, or had just started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub(crate) process: usize,
    /// `None` stands for all.
    pub(crate) runtime: Option<usize>,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Pause {
    pub(crate) fn is_at(&self, place: Place) -> bool {
        self.process == place.process && self.runtime.is_none_or(|runtime| runtime == place.runtime)
    }
}
