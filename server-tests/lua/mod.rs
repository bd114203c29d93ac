//! The script compared with the algorithms in Rust and with a naive oracle, and the protocol of the script.

mod clock_steps;
mod differential;
mod naive;
mod oracle;
pub(crate) mod protocol;
mod refund;
mod time_to_live;
