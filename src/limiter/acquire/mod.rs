//! Waiting for units: `Limiter::acquire` and `Limiter::acquire_hold`.
//!
//! Callers that wait for one key form a queue, and only its head asks the store, at the time that the store gave. The
//! queue is served by a dispatcher: a task of its own as soon as anybody waits. The future of a caller only has a place
//! in the queue.

mod dispatcher;
mod forecast;
mod future;
mod handle;
mod paused_keys;
mod place;
mod queue;
pub(super) mod queues;
mod rivals;
mod seat;
mod waiter;

pub(crate) use self::paused_keys::LONGEST_PAUSE;
pub use self::{future::AcquireFuture, handle::Acquire};
