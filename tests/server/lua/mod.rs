//! The script compared with the algorithms in Rust and with a naive oracle, and the protocol of the script.

mod bounds;
mod calendar;
pub(crate) mod call;
mod clock_steps;
mod differential;
mod foreign_values;
mod oracle;
pub(crate) mod policy;
mod protocol;
mod receipts;
mod records;
mod refund;
mod report;
mod time_to_live;
mod versions;
