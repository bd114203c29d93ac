//! The tokio runtime of checks: its drivers, its stalls, and deadlines that do not count stalls.

pub(crate) mod deadline;
pub(crate) mod drivers;
pub(crate) mod stalls;
