//! The script against the pure algorithms, and its protocol on its own.
#![allow(clippy::unwrap_used)]

mod clock_steps;
mod differential;
mod refund;
mod naive;
mod protocol;
mod side_by_side;
#[path = "../support/mod.rs"]
mod support;
mod time_to_live;
