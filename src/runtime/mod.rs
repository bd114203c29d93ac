//! The tokio runtime that checks run on: its drivers, its stalls, and deadlines that discount them.

pub(crate) mod deadline;
pub(crate) mod drivers;
pub(crate) mod stalls;
