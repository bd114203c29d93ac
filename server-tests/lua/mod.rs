//! The script against the pure algorithms, and its protocol on its own.

mod clock_steps;
mod differential;
mod naive;
mod protocol;
mod refund;
mod side_by_side;
mod time_to_live;
