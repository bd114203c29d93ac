//! The tokio runtime of checks: its drivers, its stalls, deadlines that do not count stalls, precise sleeps, and
//! workers. Real time and random numbers, which a simulated world replaces.

pub(crate) mod deadline;
pub(crate) mod drivers;
#[cfg(feature = "redis")]
pub(crate) mod latest;
pub(crate) mod precise_sleep;
pub(crate) mod random;
pub(crate) mod real_time;
pub(crate) mod stalls;
pub(crate) mod workers;
#[cfg(feature = "test-util")]
pub mod world;
#[cfg(not(feature = "test-util"))]
#[path = "no_world.rs"]
mod world;
