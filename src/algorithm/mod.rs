//! The algorithms as pure arithmetic: no I/O, no clock, no store.
//!
//! Times are microseconds since the Unix epoch. Each algorithm has a file here and one in `lua/` with the same name,
//! the same steps and the same results: **evaluate** reads, **commit** writes.

mod counter;
mod fixed_window;
mod held;
mod record_queue;
#[cfg(feature = "redis")]
mod reported;
mod sliding_window_counter;
mod sliding_window_log;
mod state;
mod token_bucket;

#[cfg(feature = "redis")]
pub(crate) use self::reported::Reported;
pub(crate) use self::{
    held::Held,
    state::{Admission, CountState},
};
