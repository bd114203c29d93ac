//! The tokio runtime of checks: its drivers, its stalls, deadlines that do not count stalls, and precise sleeps.

pub(crate) mod deadline;
pub(crate) mod drivers;
pub(crate) mod precise_sleep;
pub(crate) mod stalls;
